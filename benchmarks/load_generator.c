/* Load on one RocketMQ server: many connections, a fixed number of requests in flight on each.
 *
 * Usage: load_generator PORT CONNECTIONS IN_FLIGHT SECONDS CALLS_MAX FRAMES FRAME_BYTES OPAQUE_AT ENCODING
 *
 *     FRAMES       file of request frames, FRAME_BYTES each, sent in turn
 *     OPAQUE_AT    where in each frame the opaque lies
 *     ENCODING     json: the opaque is nine decimal digits; binary: four bytes, big-endian
 *
 * Talks to 127.0.0.1 only. Every connection first makes one call, which is not counted. Then it
 * prints "ready", waits for a line on standard input, and loads the server until SECONDS have
 * passed or CALLS_MAX calls are made. Requests under way at that moment are waited for and counted.
 *
 * Every reply is checked: frame and header well formed (in either encoding), response flag set,
 * code 0, opaque that of a request in flight on the same connection, body as long as the first.
 * The first mistake ends the run with a message and status 1. At the end it prints one JSON line.
 *
 * One thread, epoll. The life of the process is bounded by an alarm.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 1024,
    IN_FLIGHT_MAX = 1024,
    SECONDS_MAX = 600,
    RECEIVED_BYTES_MAX = 1 << 18,
    FRAMES_BYTES_MAX = 1 << 20,
    GRACE_SECONDS = 10, /* to connect, for the first calls, and for the last replies */
    GO_SECONDS = 30,    /* for the line that starts the load */
};

/* Opaques have nine digits throughout, so that every frame keeps its length. */
static const int64_t OPAQUE_LOW = 100000000, OPAQUE_END = 1000000000;

typedef struct {
    int64_t turn;    /* how many calls this slot has made */
    uint64_t sent_ns;
    bool in_flight;
} Slot;

typedef struct {
    int fd;
    int number;
    bool waits_to_write;
    char *received;
    size_t received_bytes;
    char *unsent;
    size_t unsent_start, unsent_end;
    Slot *slots;
} Connection;

typedef struct {
    const char *frames;
    size_t frame_bytes, frames_count, opaque_at;
    bool json;
} Requests;

/* Latencies in buckets of a 32nd of a power of two: a figure read from them is at most 3 % high. */
enum { BUCKETS_PER_POWER = 32, BUCKETS = 64 * BUCKETS_PER_POWER };

static int connections_count, in_flight_max;
static Connection connections[CONNECTIONS_MAX];
static Requests requests;
static uint64_t latencies[BUCKETS];
static int64_t calls_started, calls_done, calls_max;
static int64_t body_bytes = -1;
static int polling;

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("load_generator: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *zeroed(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (memory == NULL) fail("out of memory");
    return memory;
}

/* --- latencies ------------------------------------------------------------------------------ */

static void record_latency(uint64_t ns) {
    if (ns < BUCKETS_PER_POWER) {
        latencies[ns]++;
        return;
    }
    int power = 63 - __builtin_clzll(ns);
    uint64_t part = (ns >> (power - 5)) & (BUCKETS_PER_POWER - 1);
    latencies[(uint64_t)(power - 4) * BUCKETS_PER_POWER + part]++;
}

static double latency_us(double share) {
    uint64_t total = 0, seen = 0;
    for (int i = 0; i < BUCKETS; i++) total += latencies[i];
    for (int i = 0; i < BUCKETS; i++) {
        seen += latencies[i];
        if (seen > 0 && (double)seen >= share * (double)total) {
            if (i < BUCKETS_PER_POWER) return i / 1e3;
            int power = i / BUCKETS_PER_POWER + 4;
            uint64_t part = (uint64_t)(i % BUCKETS_PER_POWER) + 1;
            return (double)((UINT64_C(1) << power) + (part << (power - 5))) / 1e3;
        }
    }
    return 0;
}

/* --- requests ------------------------------------------------------------------------------- */

static void put_request(Connection *connection, int slot_number, uint64_t now) {
    Slot *slot = &connection->slots[slot_number];
    int64_t slots = (int64_t)connections_count * in_flight_max;
    int64_t place = (int64_t)connection->number * in_flight_max + slot_number;
    int64_t opaque = OPAQUE_LOW + slot->turn * slots + place;
    if (opaque >= OPAQUE_END) fail("out of opaques after %" PRId64 " calls", calls_done);
    char *frame = connection->unsent + connection->unsent_end;
    memcpy(frame, requests.frames + (size_t)calls_started % requests.frames_count * requests.frame_bytes,
           requests.frame_bytes);
    if (requests.json) {
        char digits[24];
        snprintf(digits, sizeof digits, "%09" PRId64, opaque);
        memcpy(frame + requests.opaque_at, digits, 9);
    } else {
        uint32_t wire = htonl((uint32_t)opaque);
        memcpy(frame + requests.opaque_at, &wire, 4);
    }
    connection->unsent_end += requests.frame_bytes;
    slot->in_flight = true;
    slot->sent_ns = now;
    calls_started++;
}

static void watch(Connection *connection, int operation) {
    struct epoll_event event = {.data.ptr = connection};
    event.events = EPOLLIN | (connection->waits_to_write ? EPOLLOUT : 0u);
    if (epoll_ctl(polling, operation, connection->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
}

static void send_unsent(Connection *connection) {
    while (connection->unsent_start < connection->unsent_end) {
        ssize_t sent = send(connection->fd, connection->unsent + connection->unsent_start,
                            connection->unsent_end - connection->unsent_start, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno != EAGAIN) fail("send: %s", strerror(errno));
        if (sent < 0) break;
        connection->unsent_start += (size_t)sent;
    }
    bool is_behind = connection->unsent_start < connection->unsent_end;
    if (is_behind) {
        memmove(connection->unsent, connection->unsent + connection->unsent_start,
                connection->unsent_end - connection->unsent_start);
        connection->unsent_end -= connection->unsent_start;
    } else {
        connection->unsent_end = 0;
    }
    connection->unsent_start = 0;
    if (is_behind != connection->waits_to_write) {
        connection->waits_to_write = is_behind;
        watch(connection, EPOLL_CTL_MOD);
    }
}

/* --- replies -------------------------------------------------------------------------------- */

typedef struct {
    int64_t code, flag, opaque;
    int seen; /* a bit for each of the three */
} ReplyHeader;

static uint32_t number_at(const char *bytes) {
    uint32_t number;
    memcpy(&number, bytes, 4);
    return ntohl(number);
}

static const char *after_blanks(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n')) at++;
    return at;
}

static void take_member(ReplyHeader *header, const char *name, size_t name_bytes, int64_t value) {
    if (name_bytes == 4 && !memcmp(name, "code", 4)) {
        header->code = value;
        header->seen |= 1;
    } else if (name_bytes == 4 && !memcmp(name, "flag", 4)) {
        header->flag = value;
        header->seen |= 2;
    } else if (name_bytes == 6 && !memcmp(name, "opaque", 6)) {
        header->opaque = value;
        header->seen |= 4;
    }
}

/* Finds the numbers at the top level of an object; takes what lies deeper on trust. */
static bool read_json_header(const char *at, const char *end, ReplyHeader *header) {
    int depth = 0;
    at = after_blanks(at, end);
    if (at == end || *at != '{') return false;
    while (at < end) {
        char seen = *at++;
        if (seen == '{' || seen == '[') depth++;
        if ((seen == '}' || seen == ']') && --depth <= 0) break;
        if (seen != '"') continue;
        const char *name = at;
        while (at < end && *at != '"') at += *at == '\\' ? 2 : 1;
        if (at >= end) return false;
        size_t name_bytes = (size_t)(at++ - name);
        at = after_blanks(at, end);
        if (depth != 1 || at == end || *at != ':') continue;
        at = after_blanks(at + 1, end);
        bool negative = at < end && *at == '-';
        const char *digits = at + negative;
        int64_t value = 0;
        const char *digit = digits;
        while (digit < end && digit - digits < 10 && *digit >= '0' && *digit <= '9')
            value = value * 10 + (*digit++ - '0');
        if (digit > digits) {
            take_member(header, name, name_bytes, negative ? -value : value);
            at = digit;
        }
    }
    return depth == 0 && after_blanks(at, end) == end && header->seen == 7;
}

static bool read_binary_header(const char *at, const char *end, ReplyHeader *header) {
    if (end - at < 21) return false;
    header->code = (int16_t)((unsigned char)at[0] << 8 | (unsigned char)at[1]);
    header->opaque = (int32_t)number_at(at + 5);
    header->flag = (int32_t)number_at(at + 9);
    return true;
}

static int take_reply(Connection *connection, const char *frame, size_t frame_bytes, uint64_t now) {
    uint32_t mark = number_at(frame + 4);
    size_t header_bytes = mark & 0xFFFFFF;
    if (header_bytes > frame_bytes - 8) fail("a reply's header leaves its frame");
    const char *header_start = frame + 8, *header_end = header_start + header_bytes;
    ReplyHeader header = {0};
    bool understood = mark >> 24 == 0   ? read_json_header(header_start, header_end, &header)
                      : mark >> 24 == 1 ? read_binary_header(header_start, header_end, &header)
                                        : false;
    if (!understood) fail("a reply's header makes no sense: %.*s", (int)header_bytes, header_start);
    if (!(header.flag & 1)) fail("a reply without the response flag");
    if (header.code != 0) fail("a reply with code %" PRId64, header.code);

    int64_t slots = (int64_t)connections_count * in_flight_max;
    int64_t number = header.opaque - OPAQUE_LOW;
    int64_t slot_number = number % slots - (int64_t)connection->number * in_flight_max;
    if (number < 0 || slot_number < 0 || slot_number >= in_flight_max)
        fail("a reply to opaque %" PRId64 ", which this connection never sent", header.opaque);
    Slot *slot = &connection->slots[slot_number];
    if (!slot->in_flight || slot->turn != number / slots)
        fail("a reply to opaque %" PRId64 ", which is not in flight", header.opaque);

    int64_t this_body_bytes = (int64_t)(frame_bytes - 8 - header_bytes);
    if (body_bytes < 0) body_bytes = this_body_bytes;
    if (this_body_bytes != body_bytes)
        fail("a body of %" PRId64 " bytes after one of %" PRId64, this_body_bytes, body_bytes);

    record_latency(now - slot->sent_ns);
    slot->in_flight = false;
    slot->turn++;
    calls_done++;
    return (int)slot_number;
}

static void receive(Connection *connection, bool goes_on) {
    ssize_t got = recv(connection->fd, connection->received + connection->received_bytes,
                       RECEIVED_BYTES_MAX - connection->received_bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0) fail("recv: %s", strerror(errno));
    if (got == 0) fail("the server closed a connection");
    connection->received_bytes += (size_t)got;
    uint64_t now = now_ns();
    size_t at = 0;
    while (connection->received_bytes - at >= 8) {
        size_t frame_bytes = (size_t)number_at(connection->received + at) + 4;
        if (frame_bytes < 8 || frame_bytes > RECEIVED_BYTES_MAX)
            fail("a reply claims a frame of %zu bytes", frame_bytes);
        if (connection->received_bytes - at < frame_bytes) break;
        int slot_number = take_reply(connection, connection->received + at, frame_bytes, now);
        at += frame_bytes;
        if (goes_on && calls_started < calls_max) put_request(connection, slot_number, now);
    }
    memmove(connection->received, connection->received + at, connection->received_bytes - at);
    connection->received_bytes -= at;
    if (connection->unsent_end > 0) send_unsent(connection);
}

/* Exchanges until `end_ns`, or until nothing is in flight; returns how many still are. */
static int64_t exchange(uint64_t end_ns, bool goes_on) {
    struct epoll_event events[256];
    while (calls_started > calls_done) {
        uint64_t now = now_ns();
        if (now >= end_ns) break;
        int ready = epoll_wait(polling, events, 256, (int)((end_ns - now) / 1000000) + 1);
        if (ready < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < ready; i++) {
            Connection *connection = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) send_unsent(connection);
            if (events[i].events & ~(uint32_t)EPOLLOUT) receive(connection, goes_on);
        }
    }
    return calls_started - calls_done;
}

/* --- the run -------------------------------------------------------------------------------- */

static void open_connection(Connection *connection, int number, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int yes = 1;
    connection->number = number;
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection->fd < 0) fail("socket: %s", strerror(errno));
    if (connect(connection->fd, (struct sockaddr *)&address, sizeof address))
        fail("connect to port %d: %s", port, strerror(errno));
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(connection->fd, F_SETFL, O_NONBLOCK);
    connection->received = zeroed(1, RECEIVED_BYTES_MAX);
    connection->unsent = zeroed((size_t)in_flight_max, requests.frame_bytes);
    connection->slots = zeroed((size_t)in_flight_max, sizeof(Slot));
    watch(connection, EPOLL_CTL_ADD);
}

static void read_frames(const char *path, size_t frame_bytes, size_t opaque_at, const char *encoding) {
    char *frames = zeroed(1, FRAMES_BYTES_MAX);
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail("cannot open the frames: %s", strerror(errno));
    size_t bytes = fread(frames, 1, FRAMES_BYTES_MAX, file);
    fclose(file);
    requests.json = !strcmp(encoding, "json");
    if (!requests.json && strcmp(encoding, "binary")) fail("encoding %s is unknown", encoding);
    if (frame_bytes == 0 || bytes == 0 || bytes % frame_bytes || bytes == FRAMES_BYTES_MAX)
        fail("%zu bytes of frames are not a number of frames of %zu", bytes, frame_bytes);
    if (opaque_at + (requests.json ? 9 : 4) > frame_bytes) fail("the opaque leaves the frame");
    requests.frames = frames;
    requests.frame_bytes = frame_bytes;
    requests.frames_count = bytes / frame_bytes;
    requests.opaque_at = opaque_at;
}

static long number_within(const char *text, long low, long high) {
    char *end;
    long number = strtol(text, &end, 10);
    if (*text == 0 || *end != 0 || number < low || number > high)
        fail("%s is not a number from %ld to %ld", text, low, high);
    return number;
}

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void first_calls(void) {
    calls_max = 0;
    for (int i = 0; i < connections_count; i++) {
        put_request(&connections[i], 0, now_ns());
        send_unsent(&connections[i]);
    }
    if (exchange(now_ns() + GRACE_SECONDS * UINT64_C(1000000000), false))
        fail("no answer to the first call within %d s", GRACE_SECONDS);
    calls_started = calls_done = 0;
    memset(latencies, 0, sizeof latencies);
}

int main(int count, char **arguments) {
    if (count != 10)
        fail("usage: PORT CONNECTIONS IN_FLIGHT SECONDS CALLS_MAX FRAMES FRAME_BYTES OPAQUE_AT ENCODING");
    int port = (int)number_within(arguments[1], 1, 65535);
    connections_count = (int)number_within(arguments[2], 1, CONNECTIONS_MAX);
    in_flight_max = (int)number_within(arguments[3], 1, IN_FLIGHT_MAX);
    double seconds = strtod(arguments[4], NULL);
    if (!(seconds > 0 && seconds <= SECONDS_MAX)) fail("seconds must be above 0, up to %d", SECONDS_MAX);
    int64_t wanted_calls = number_within(arguments[5], 1, OPAQUE_END);
    size_t frame_bytes = (size_t)number_within(arguments[7], 8, FRAMES_BYTES_MAX);
    read_frames(arguments[6], frame_bytes, (size_t)number_within(arguments[8], 8, FRAMES_BYTES_MAX),
                arguments[9]);
    alarm((unsigned)seconds + 3 * GRACE_SECONDS + GO_SECONDS);

    polling = epoll_create1(EPOLL_CLOEXEC);
    if (polling < 0) fail("epoll_create1: %s", strerror(errno));
    for (int i = 0; i < connections_count; i++) open_connection(&connections[i], i, port);
    first_calls();

    puts("ready");
    fflush(stdout);
    char line[16];
    if (fgets(line, sizeof line, stdin) == NULL) fail("told to stop before the start");

    calls_max = wanted_calls;
    double cpu_before = cpu_seconds();
    uint64_t start_ns = now_ns();
    for (int i = 0; i < connections_count; i++) {
        for (int j = 0; j < in_flight_max && calls_started < calls_max; j++)
            put_request(&connections[i], j, now_ns());
        send_unsent(&connections[i]);
    }
    exchange(start_ns + (uint64_t)(seconds * 1e9), true);
    if (exchange(now_ns() + GRACE_SECONDS * UINT64_C(1000000000), false))
        fail("%" PRId64 " calls without an answer after %d s", calls_started - calls_done, GRACE_SECONDS);
    double took = (double)(now_ns() - start_ns) / 1e9;

    printf("{\"calls\": %" PRId64 ", \"seconds\": %.6f, \"errors\": 0, \"p50_us\": %.1f, \"p99_us\": %.1f, "
           "\"body_bytes\": %" PRId64 ", \"generator_cpu_seconds\": %.6f}\n",
           calls_done, took, latency_us(0.5), latency_us(0.99), body_bytes, cpu_seconds() - cpu_before);
    return 0;
}

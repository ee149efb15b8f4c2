/* Load on one RocketMQ server: many connections, a fixed number of requests in flight on each.
 *
 * Usage: load_generator PORT CONNECTIONS IN_FLIGHT SECONDS CALLS_MAX FRAMES FIRST_SERIAL RECORDS
 *
 *     FRAMES        file of request frames, sent in turn; wire.h says what changes in each
 *     FIRST_SERIAL  the first of the numbers that messages are told apart by
 *     RECORDS       how many records the body of each reply must hold; with 0 it must be as long
 *                   as the first
 *
 * Talks to 127.0.0.1 only. Every connection first makes one call, which is not counted. Then it
 * prints "ready", waits for a line on standard input, and loads the server until SECONDS have
 * passed or CALLS_MAX calls are made. Requests under way at that moment are waited for and counted.
 *
 * Every reply is checked: frame and header well formed (in either encoding), response flag set,
 * code 0, opaque that of a request in flight on the same connection, body as it should be.
 * The first mistake ends the run with a message and status 1. At the end it prints one JSON line.
 *
 * One thread, epoll. The life of the process is bounded by an alarm.
 */

#include "wire.h"

enum {
    CONNECTIONS_MAX = 1024,
    IN_FLIGHT_MAX = 1024,
    SECONDS_MAX = 600,
    RECEIVED_BYTES_MAX = 1 << 19,
    GRACE_SECONDS = 60, /* to connect, for the first calls, and for the last replies */
    GO_SECONDS = 120,   /* for the line that starts the load */
};

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

static int connections_count, in_flight_max;
static Connection connections[CONNECTIONS_MAX];
static Templates requests;
static Latencies latencies;
static uint64_t serial;
static long records_wanted;
static int64_t calls_started, calls_done, calls_max;
static int64_t body_bytes = -1;
static int polling;

/* --- requests ------------------------------------------------------------------------------- */

static void put_request(Connection *connection, int slot_number, uint64_t now) {
    Slot *slot = &connection->slots[slot_number];
    int64_t slots = (int64_t)connections_count * in_flight_max;
    int64_t place = (int64_t)connection->number * in_flight_max + slot_number;
    int64_t opaque = OPAQUE_LOW + slot->turn * slots + place;
    const Template *request = &requests.all[(size_t)calls_started % requests.count];
    put_template(connection->unsent + connection->unsent_end, request, opaque, &serial);
    connection->unsent_end += request->bytes;
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

static void check_body(const char *body, const char *end) {
    int64_t this_body_bytes = end - body;
    if (body_bytes < 0) body_bytes = this_body_bytes;
    if (records_wanted == 0 && this_body_bytes != body_bytes)
        fail("a body of %" PRId64 " bytes after one of %" PRId64, this_body_bytes, body_bytes);
    if (records_wanted == 0) return;
    long records = 0;
    for (; body < end; records++) body += record_bytes_at(body, end);
    if (records != records_wanted) fail("%ld records where %ld were asked for", records, records_wanted);
}

static int take_reply(Connection *connection, const char *frame, size_t frame_bytes, uint64_t now) {
    ReplyHeader header = {0};
    size_t header_bytes = read_reply_header(frame, frame_bytes, &header);
    if (header.code != 0)
        fail("a reply with code %" PRId64 ": %.*s", header.code, (int)header_bytes, frame + PREFIX_BYTES);

    int64_t slots = (int64_t)connections_count * in_flight_max;
    int64_t number = header.opaque - OPAQUE_LOW;
    int64_t slot_number = number % slots - (int64_t)connection->number * in_flight_max;
    if (number < 0 || slot_number < 0 || slot_number >= in_flight_max)
        fail("a reply to opaque %" PRId64 ", which this connection never sent", header.opaque);
    Slot *slot = &connection->slots[slot_number];
    if (!slot->in_flight || slot->turn != number / slots)
        fail("a reply to opaque %" PRId64 ", which is not in flight", header.opaque);

    check_body(frame + PREFIX_BYTES + header_bytes, frame + frame_bytes);

    record_latency(&latencies, now - slot->sent_ns);
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
    connection->number = number;
    connection->fd = connected_socket(port);
    connection->received = zeroed(1, RECEIVED_BYTES_MAX);
    connection->unsent = zeroed((size_t)in_flight_max, requests.bytes_max);
    connection->slots = zeroed((size_t)in_flight_max, sizeof(Slot));
    watch(connection, EPOLL_CTL_ADD);
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
    memset(&latencies, 0, sizeof latencies);
}

int main(int count, char **arguments) {
    if (count != 9)
        fail("usage: PORT CONNECTIONS IN_FLIGHT SECONDS CALLS_MAX FRAMES FIRST_SERIAL RECORDS");
    int port = (int)number_within(arguments[1], 1, 65535);
    connections_count = (int)number_within(arguments[2], 1, CONNECTIONS_MAX);
    in_flight_max = (int)number_within(arguments[3], 1, IN_FLIGHT_MAX);
    double seconds = strtod(arguments[4], NULL);
    if (!(seconds > 0 && seconds <= SECONDS_MAX)) fail("seconds must be above 0, up to %d", SECONDS_MAX);
    int64_t wanted_calls = number_within(arguments[5], 1, OPAQUE_END);
    requests = read_templates(arguments[6]);
    serial = (uint64_t)number_within(arguments[7], 0, INT64_MAX);
    records_wanted = number_within(arguments[8], 0, 1024);
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

    printf("{\"calls\": %" PRId64 ", \"first_calls\": %d, \"seconds\": %.6f, \"body_bytes\": %" PRId64
           ", \"generator_cpu_seconds\": %.6f, ",
           calls_done, connections_count, took, body_bytes, cpu_seconds() - cpu_before);
    print_latencies("latency", &latencies);
    puts("}");
    return 0;
}

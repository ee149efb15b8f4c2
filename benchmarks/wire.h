/* What the programs that load servers share: frames, headers of replies, latencies.
 *
 * Each program is one file that includes this one; what it does not use is not compiled in.
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

/* The place of an opaque in a JSON template; opaques have nine digits, so frames keep their length. */
static const char OPAQUE_MARK[] = "100000000";
static const int64_t OPAQUE_LOW = 100000000, OPAQUE_END = 1000000000;
enum { OPAQUE_DIGITS = 9, BINARY_OPAQUE_AT = 13, PREFIX_BYTES = 8 };

/* A place for twelve hexadecimal digits that no other message has: the end of its unique id. */
static const char SERIAL_MARK[] = "############";
enum { SERIAL_DIGITS = 12 };

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

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static long number_within(const char *text, long low, long high) {
    char *end;
    long number = strtol(text, &end, 10);
    if (*text == 0 || *end != 0 || number < low || number > high)
        fail("%s is not a number from %ld to %ld", text, low, high);
    return number;
}

static uint32_t number_at(const char *bytes) {
    uint32_t number;
    memcpy(&number, bytes, 4);
    return ntohl(number);
}

static void put_number(char *bytes, uint32_t number) {
    uint32_t wire = htonl(number);
    memcpy(bytes, &wire, 4);
}

static int connected_socket(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int yes = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&address, sizeof address))
        fail("connect to port %d: %s", port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* --- latencies ------------------------------------------------------------------------------ */

/* In buckets of a 32nd of a power of two: a figure read from them is at most 3 % high. */
enum { BUCKETS_PER_POWER = 32, BUCKETS = 64 * BUCKETS_PER_POWER };

typedef struct {
    uint64_t counts[BUCKETS];
} Latencies;

static void record_latency(Latencies *latencies, uint64_t ns) {
    if (ns < BUCKETS_PER_POWER) {
        latencies->counts[ns]++;
        return;
    }
    int power = 63 - __builtin_clzll(ns);
    uint64_t part = (ns >> (power - 5)) & (BUCKETS_PER_POWER - 1);
    latencies->counts[(uint64_t)(power - 4) * BUCKETS_PER_POWER + part]++;
}

static double latency_us(const Latencies *latencies, double share) {
    uint64_t total = 0, seen = 0;
    for (int i = 0; i < BUCKETS; i++) total += latencies->counts[i];
    for (int i = 0; i < BUCKETS; i++) {
        seen += latencies->counts[i];
        if (seen > 0 && (double)seen >= share * (double)total) {
            if (i < BUCKETS_PER_POWER) return i / 1e3;
            int power = i / BUCKETS_PER_POWER + 4;
            uint64_t part = (uint64_t)(i % BUCKETS_PER_POWER) + 1;
            return (double)((UINT64_C(1) << power) + (part << (power - 5))) / 1e3;
        }
    }
    return 0;
}

static void print_latencies(const char *name, const Latencies *latencies) {
    printf("\"%s\": {\"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f}",
           name, latency_us(latencies, 0.5), latency_us(latencies, 0.9), latency_us(latencies, 0.99),
           latency_us(latencies, 0.999), latency_us(latencies, 1));
}

/* --- templates of requests ------------------------------------------------------------------ */

enum { TEMPLATES_BYTES_MAX = 1 << 26, TEMPLATES_MAX = 1 << 16 };

/* One request frame of a file, with the places of what changes from call to call. */
typedef struct {
    const char *frame;
    size_t bytes, opaque_at, serials;
    size_t *serials_at;
    bool json;
} Template;

typedef struct {
    Template *all;
    size_t count, bytes_max;
} Templates;

static Template template_of(const char *frame, size_t bytes) {
    Template found = {.frame = frame, .bytes = bytes, .json = frame[4] == 0};
    size_t header_bytes = number_at(frame + 4) & 0xFFFFFF;
    if (header_bytes > bytes - PREFIX_BYTES) fail("a request's header leaves its frame");
    found.opaque_at = BINARY_OPAQUE_AT;
    if (found.json) {
        const char *mark = memmem(frame + PREFIX_BYTES, header_bytes, OPAQUE_MARK, OPAQUE_DIGITS);
        if (mark == NULL) fail("a request has no place for its opaque");
        found.opaque_at = (size_t)(mark - frame);
    }
    size_t room = bytes / SERIAL_DIGITS + 1;
    found.serials_at = zeroed(room, sizeof(size_t));
    const char *at = frame;
    while ((at = memmem(at, bytes - (size_t)(at - frame), SERIAL_MARK, SERIAL_DIGITS)) != NULL) {
        found.serials_at[found.serials++] = (size_t)(at - frame);
        at += SERIAL_DIGITS;
    }
    return found;
}

static Templates read_templates(const char *path) {
    char *frames = zeroed(1, TEMPLATES_BYTES_MAX);
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail("cannot open %s: %s", path, strerror(errno));
    size_t bytes = fread(frames, 1, TEMPLATES_BYTES_MAX, file);
    fclose(file);
    if (bytes == 0 || bytes == TEMPLATES_BYTES_MAX) fail("%s holds %zu bytes", path, bytes);
    Templates templates = {.all = zeroed(TEMPLATES_MAX, sizeof(Template))};
    for (size_t at = 0; at < bytes;) {
        size_t frame_bytes = bytes - at < PREFIX_BYTES ? 0 : (size_t)number_at(frames + at) + 4;
        if (frame_bytes < PREFIX_BYTES || frame_bytes > bytes - at)
            fail("%s is no row of frames at byte %zu", path, at);
        if (templates.count == TEMPLATES_MAX) fail("%s holds more than %d frames", path, TEMPLATES_MAX);
        templates.all[templates.count++] = template_of(frames + at, frame_bytes);
        if (frame_bytes > templates.bytes_max) templates.bytes_max = frame_bytes;
        at += frame_bytes;
    }
    return templates;
}

/* Writes a request; takes as many serials as it has places for. */
static void put_template(char *out, const Template *template, int64_t opaque, uint64_t *serial) {
    memcpy(out, template->frame, template->bytes);
    if (opaque >= OPAQUE_END) fail("out of opaques");
    char digits[32];
    if (template->json) {
        snprintf(digits, sizeof digits, "%09" PRId64, opaque);
        memcpy(out + template->opaque_at, digits, OPAQUE_DIGITS);
    } else {
        put_number(out + template->opaque_at, (uint32_t)opaque);
    }
    for (size_t i = 0; i < template->serials; i++) {
        snprintf(digits, sizeof digits, "%012" PRIX64, *serial & UINT64_C(0xFFFFFFFFFFFF));
        memcpy(out + template->serials_at[i], digits, SERIAL_DIGITS);
        (*serial)++;
    }
}

/* --- headers of replies --------------------------------------------------------------------- */

typedef struct {
    int64_t code, flag, opaque;
    int seen; /* a bit for each of the three */
} ReplyHeader;

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

/* Reads the header of a reply, in either encoding; returns how many bytes it has. */
static size_t read_reply_header(const char *frame, size_t frame_bytes, ReplyHeader *header) {
    uint32_t mark = number_at(frame + 4);
    size_t header_bytes = mark & 0xFFFFFF;
    if (header_bytes > frame_bytes - PREFIX_BYTES) fail("a reply's header leaves its frame");
    const char *start = frame + PREFIX_BYTES, *end = start + header_bytes;
    bool understood = mark >> 24 == 0   ? read_json_header(start, end, header)
                      : mark >> 24 == 1 ? read_binary_header(start, end, header)
                                        : false;
    if (!understood) fail("a reply's header makes no sense: %.*s", (int)header_bytes, start);
    if (!(header->flag & 1)) fail("a reply without the response flag");
    return header_bytes;
}

/* --- records -------------------------------------------------------------------------------- */

enum { RECORD_QUEUE_OFFSET_AT = 20, RECORD_BODY_AT = 88 };

/* Checks that a whole record starts here; returns its bytes. */
static size_t record_bytes_at(const char *record, const char *end) {
    if (end - record < RECORD_BODY_AT) fail("a record is cut off");
    size_t bytes = number_at(record);
    if (number_at(record + 4) != 0xDAA320A7u) fail("what should be a record has no record's magic");
    if (bytes < RECORD_BODY_AT || bytes > (size_t)(end - record)) fail("a record claims %zu bytes", bytes);
    return bytes;
}

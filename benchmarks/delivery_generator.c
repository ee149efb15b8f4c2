/* Messages through one RocketMQ broker at a steady rate, from producers to waiting consumers.
 *
 * Usage: delivery_generator PORT RATE SECONDS SENDS PULLS OFFSETS FIRST_SERIAL
 *
 *     RATE          messages per second in all
 *     SENDS, PULLS  files with one request frame per queue each; wire.h says what changes in them.
 *                   The body of a send begins with 8 bytes that take the time; a pull has "@" where
 *                   its queue offset goes, and asks the broker to hold it
 *     OFFSETS       where each queue ends now, with commas between
 *     FIRST_SERIAL  the first of the numbers that messages are told apart by
 *
 * Talks to 127.0.0.1 only. Every queue has a producer and a consumer with a connection each. The
 * producers send at fixed times, whatever was answered so far; each consumer has one pull waiting.
 * It prints "ready" once the pulls are sent, and starts on a line on standard input.
 *
 * Every reply is checked as load_generator.c does; every record must have the queue offset that
 * comes next, so that none is lost, doubled or out of order. At the end as many records must have
 * come as were sent, and it prints one JSON line: time from sending to the reply, and to receipt.
 *
 * One thread, epoll. The life of the process is bounded by an alarm.
 */

#include "wire.h"

#include <sys/prctl.h>

enum {
    QUEUES_MAX = 256,
    SECONDS_MAX = 600,
    RECEIVED_BYTES_MAX = 1 << 19,
    IN_FLIGHT_MAX = 1 << 14, /* of one producer: a broker that falls so far behind has failed */
    GRACE_SECONDS = 60,
    GO_SECONDS = 120,
    FOUND = 0,
    NOT_FOUND = 19,
    RETRY_AT_ONCE = 20,
};

static const char OFFSET_MARK[] = "\"@\"";

typedef struct {
    int fd;
    bool is_producer;
    char *received;
    size_t received_bytes;
    int64_t calls_started, calls_done;
    int64_t next_offset;      /* consumers: of the record that comes next */
    uint64_t *sent_ns;        /* producers: by call, in a ring */
    const Template *template;
} Connection;

static int queues, polling;
static Connection producers[QUEUES_MAX], consumers[QUEUES_MAX];
static Templates sends, pulls;
static Latencies send_latencies, delivery_latencies;
static uint64_t serial;
static int64_t sent, answered, delivered, held_again;
static char *frame_room;

static void send_all(int fd, const char *bytes, size_t count) {
    ssize_t done = send(fd, bytes, count, MSG_NOSIGNAL);
    /* What is under way is far below what a socket holds. */
    if (done != (ssize_t)count) fail("send: %s", done < 0 ? strerror(errno) : "the socket is full");
}

static void put_time(char *at, uint64_t ns) {
    put_number(at, (uint32_t)(ns >> 32));
    put_number(at + 4, (uint32_t)ns);
}

static uint64_t time_at(const char *at) {
    return (uint64_t)number_at(at) << 32 | number_at(at + 4);
}

static void send_message(Connection *producer) {
    if (producer->calls_started - producer->calls_done == IN_FLIGHT_MAX)
        fail("a producer has %d sends in flight", IN_FLIGHT_MAX);
    put_template(frame_room, producer->template, OPAQUE_LOW + producer->calls_started, &serial);
    char *body = frame_room + PREFIX_BYTES + (number_at(frame_room + 4) & 0xFFFFFF);
    uint64_t now = now_ns();
    put_time(body, now);
    producer->sent_ns[producer->calls_started++ % IN_FLIGHT_MAX] = now;
    sent++;
    send_all(producer->fd, frame_room, producer->template->bytes);
}

/* Puts the offset in the place of its mark, which makes header and frame longer. */
static void send_pull(Connection *consumer) {
    put_template(frame_room, consumer->template, OPAQUE_LOW + consumer->calls_started++, &serial);
    size_t bytes = consumer->template->bytes;
    char *mark = memmem(frame_room, bytes, OFFSET_MARK, 3);
    if (mark == NULL) fail("a pull has no place for its offset");
    char digits[24];
    size_t more = (size_t)snprintf(digits, sizeof digits, "%" PRId64, consumer->next_offset) - 1;
    memmove(mark + 2 + more, mark + 2, bytes - (size_t)(mark + 2 - frame_room));
    memcpy(mark + 1, digits, more + 1);
    put_number(frame_room, (uint32_t)(bytes + more - 4));
    put_number(frame_room + 4, number_at(frame_room + 4) + (uint32_t)more);
    send_all(consumer->fd, frame_room, bytes + more);
}

static void take_sent(Connection *producer, const ReplyHeader *header, uint64_t now) {
    int64_t call = header->opaque - OPAQUE_LOW;
    if (header->code != FOUND) fail("a send was answered with code %" PRId64, header->code);
    /* Replies may overtake each other, so that only the range can be told. */
    if (call < 0 || call >= producer->calls_started || producer->sent_ns[call % IN_FLIGHT_MAX] == 0)
        fail("a reply to send %" PRId64 ", which is not in flight", call);
    record_latency(&send_latencies, now - producer->sent_ns[call % IN_FLIGHT_MAX]);
    producer->sent_ns[call % IN_FLIGHT_MAX] = 0;
    producer->calls_done++;
    answered++;
}

static void take_pulled(Connection *consumer, const ReplyHeader *header, const char *body, const char *end,
                        uint64_t now) {
    if (header->opaque != OPAQUE_LOW + consumer->calls_started - 1)
        fail("a reply to a pull that does not wait");
    if (header->code == NOT_FOUND || header->code == RETRY_AT_ONCE) {
        held_again++;
    } else if (header->code != FOUND) {
        fail("a pull was answered with code %" PRId64, header->code);
    } else if (body == end) {
        fail("a pull found nothing, and says that it did");
    }
    while (body < end) {
        size_t bytes = record_bytes_at(body, end);
        int64_t offset = (int64_t)time_at(body + RECORD_QUEUE_OFFSET_AT);
        if (offset != consumer->next_offset)
            fail("record %" PRId64 " came where %" PRId64 " should", offset, consumer->next_offset);
        record_latency(&delivery_latencies, now - time_at(body + RECORD_BODY_AT));
        consumer->next_offset++;
        delivered++;
        body += bytes;
    }
    send_pull(consumer);
}

static void receive(Connection *connection) {
    ssize_t got = recv(connection->fd, connection->received + connection->received_bytes,
                       RECEIVED_BYTES_MAX - connection->received_bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0) fail("recv: %s", strerror(errno));
    if (got == 0) fail("the server closed a connection");
    connection->received_bytes += (size_t)got;
    uint64_t now = now_ns();
    size_t at = 0;
    while (connection->received_bytes - at >= PREFIX_BYTES) {
        const char *frame = connection->received + at;
        size_t bytes = (size_t)number_at(frame) + 4;
        if (bytes < PREFIX_BYTES || bytes > RECEIVED_BYTES_MAX)
            fail("a reply claims a frame of %zu bytes", bytes);
        if (connection->received_bytes - at < bytes) break;
        ReplyHeader header = {0};
        size_t header_bytes = read_reply_header(frame, bytes, &header);
        if (connection->is_producer) take_sent(connection, &header, now);
        else take_pulled(connection, &header, frame + PREFIX_BYTES + header_bytes, frame + bytes, now);
        at += bytes;
    }
    memmove(connection->received, connection->received + at, connection->received_bytes - at);
    connection->received_bytes -= at;
}

static void receive_until(uint64_t end_ns) {
    struct epoll_event events[256];
    uint64_t now = now_ns();
    uint64_t wait_ns = end_ns > now ? end_ns - now : 0;
    struct timespec wait = {.tv_sec = (time_t)(wait_ns / 1000000000), .tv_nsec = (long)(wait_ns % 1000000000)};
    int ready = epoll_pwait2(polling, events, 256, &wait, NULL);
    if (ready < 0 && errno != EINTR) fail("epoll_pwait2: %s", strerror(errno));
    for (int i = 0; i < ready; i++) receive(events[i].data.ptr);
}

static void open_connection(Connection *connection, int port, const Template *template, bool is_producer) {
    connection->fd = connected_socket(port);
    connection->is_producer = is_producer;
    connection->template = template;
    connection->received = zeroed(1, RECEIVED_BYTES_MAX);
    if (is_producer) connection->sent_ns = zeroed(IN_FLIGHT_MAX, sizeof(uint64_t));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(polling, EPOLL_CTL_ADD, connection->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
}

int main(int count, char **arguments) {
    if (count != 8) fail("usage: PORT RATE SECONDS SENDS PULLS OFFSETS FIRST_SERIAL");
    int port = (int)number_within(arguments[1], 1, 65535);
    double rate = (double)number_within(arguments[2], 1, 1000000);
    double seconds = strtod(arguments[3], NULL);
    if (!(seconds > 0 && seconds <= SECONDS_MAX)) fail("seconds must be above 0, up to %d", SECONDS_MAX);
    sends = read_templates(arguments[4]);
    pulls = read_templates(arguments[5]);
    if (sends.count != pulls.count || sends.count > QUEUES_MAX)
        fail("%zu sends and %zu pulls, where one of each per queue is needed", sends.count, pulls.count);
    queues = (int)sends.count;
    serial = (uint64_t)number_within(arguments[7], 0, INT64_MAX);
    frame_room = zeroed(1, sends.bytes_max + pulls.bytes_max + 64);
    alarm((unsigned)seconds + 3 * GRACE_SECONDS + GO_SECONDS);
    prctl(PR_SET_TIMERSLACK, 1); /* wake up when a send is due, not 50 us later */

    polling = epoll_create1(EPOLL_CLOEXEC);
    if (polling < 0) fail("epoll_create1: %s", strerror(errno));
    char *offset = strtok(arguments[6], ",");
    for (int i = 0; i < queues; i++) {
        if (offset == NULL) fail("fewer offsets than queues");
        open_connection(&producers[i], port, &sends.all[i], true);
        open_connection(&consumers[i], port, &pulls.all[i], false);
        consumers[i].next_offset = number_within(offset, 0, INT64_MAX);
        offset = strtok(NULL, ",");
        send_pull(&consumers[i]);
    }

    puts("ready");
    fflush(stdout);
    char line[16];
    if (fgets(line, sizeof line, stdin) == NULL) fail("told to stop before the start");

    double cpu_before = cpu_seconds();
    uint64_t start_ns = now_ns();
    int64_t wanted = (int64_t)(rate * seconds);
    while (sent < wanted) {
        uint64_t due_ns = start_ns + (uint64_t)((double)sent * 1e9 / rate);
        if (now_ns() >= due_ns) send_message(&producers[sent % queues]);
        receive_until(due_ns);
    }
    uint64_t end_ns = now_ns() + GRACE_SECONDS * UINT64_C(1000000000);
    while ((answered < sent || delivered < sent) && now_ns() < end_ns) receive_until(end_ns);
    double took = (double)(now_ns() - start_ns) / 1e9;
    if (answered != sent || delivered != sent)
        fail("%" PRId64 " sent, %" PRId64 " answered, %" PRId64 " received", sent, answered, delivered);

    printf("{\"messages\": %" PRId64 ", \"seconds\": %.6f, \"held_again\": %" PRId64
           ", \"generator_cpu_seconds\": %.6f, ",
           sent, took, held_again, cpu_seconds() - cpu_before);
    print_latencies("send", &send_latencies);
    printf(", ");
    print_latencies("delivery", &delivery_latencies);
    puts("}");
    return 0;
}

/* The least that a small chunk costs three hops in native code: what `benchmarks/native_hop` compares datanodes with.
 *
 *     writers (this process) -> head -> middle -> tail, a process each
 *
 * A writer sends a frame as long as an opening of ours with 1 KiB, and sends the next when it has been acknowledged. A
 * hop reads every byte of a frame three times, which stands for the token, the seal and the checksums; forwards it;
 * appends what all frames of one look at its connections bring with one call, and syncs it once; and acknowledges when
 * it has synced and the next hop has acknowledged. There are no tokens, no index, no limits and no deadlines; any error
 * ends the program.
 *
 *     bare_hops WRITERS SECONDS DIRECTORY
 *
 * prints the frames acknowledged, the seconds, and the processor time of all hops in seconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HOPS = 3, WRITERS_MAX = 64, OPENING_BYTES = 300, CHUNK_BYTES = 1024, RECEIPT_BYTES = 100 };
enum { FRAME_BYTES = OPENING_BYTES + CHUNK_BYTES, RECORD_BYTES = CHUNK_BYTES + 64 };

/* One chunk on its way through a hop. */
struct chunk {
    int upstream, onward;
    size_t received, acknowledged;
    unsigned char frame[FRAME_BYTES], receipts[HOPS * RECEIPT_BYTES];
    int is_stored, is_acknowledged;
};

static void require(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static int stream_socket(void) {
    int made = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    require(made >= 0, "socket");
    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return made;
}

/* Listen on a free port of loopback, whose address is left in `address`. */
static int listener(struct sockaddr_in *address) {
    int made = stream_socket();
    socklen_t length = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    require(!bind(made, (void *)address, length) && !listen(made, WRITERS_MAX), "listen");
    require(!getsockname(made, (void *)address, &length), "getsockname");
    return made;
}

static int connection(const struct sockaddr_in *address) {
    int made = stream_socket();
    require(!connect(made, (const void *)address, sizeof *address), "connect");
    return made;
}

static void watch(int poll, int descriptor, uint32_t number) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    require(!epoll_ctl(poll, EPOLL_CTL_ADD, descriptor, &event), "epoll_ctl");
}

static uint64_t looked_at(const unsigned char *bytes, size_t count, uint64_t sum) {
    for (size_t i = 0; i < count; i++) sum = (sum ^ bytes[i]) * 1099511628211u;
    return sum;
}

/* Serve `writers` connections until they are closed. `after` hops come after this one. */
static void hop(int listening, const struct sockaddr_in *next, int writers, int after, const char *directory) {
    static struct chunk chunks[WRITERS_MAX];
    struct epoll_event events[2 * WRITERS_MAX];
    int poll = epoll_create1(0), yes = 1, open_connections = writers;
    size_t awaited = (size_t)after * RECEIPT_BYTES;
    volatile uint64_t sum = 0;
    char name[4096];
    snprintf(name, sizeof name, "%s/hop-%d", directory, HOPS - after);
    int file = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    require(file >= 0, name);
    for (int i = 0; i < writers; i++) {
        chunks[i].upstream = accept(listening, NULL, NULL);
        require(chunks[i].upstream >= 0, "accept");
        setsockopt(chunks[i].upstream, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        watch(poll, chunks[i].upstream, 2 * (uint32_t)i);
        if (after) watch(poll, chunks[i].onward = connection(next), 2 * (uint32_t)i + 1);
    }
    while (open_connections) {
        int come[WRITERS_MAX], done[WRITERS_MAX], come_count = 0, done_count = 0;
        int count = epoll_wait(poll, events, 2 * WRITERS_MAX, -1);
        for (int k = 0; k < count; k++) {
            struct chunk *chunk = &chunks[events[k].data.u32 / 2];
            if (events[k].data.u32 % 2) {
                ssize_t got = recv(chunk->onward, chunk->receipts + chunk->acknowledged, awaited - chunk->acknowledged, 0);
                require(got > 0, "the next hop");
                if ((chunk->acknowledged += (size_t)got) < awaited) continue;
                sum = looked_at(chunk->receipts, awaited, sum);
                chunk->acknowledged = 0, chunk->is_acknowledged = 1;
                if (chunk->is_stored) done[done_count++] = (int)(chunk - chunks);
                continue;
            }
            ssize_t got = recv(chunk->upstream, chunk->frame + chunk->received, FRAME_BYTES - chunk->received, 0);
            if (got <= 0) {
                close(chunk->upstream), open_connections--;
                if (after) epoll_ctl(poll, EPOLL_CTL_DEL, chunk->onward, NULL), close(chunk->onward);
                continue;
            }
            if ((chunk->received += (size_t)got) < FRAME_BYTES) continue;
            chunk->received = 0;
            for (int time = 0; time < 3; time++) sum = looked_at(chunk->frame, FRAME_BYTES, sum);
            if (after) require(send(chunk->onward, chunk->frame, FRAME_BYTES, 0) == FRAME_BYTES, "forward");
            come[come_count++] = (int)(chunk - chunks);
        }
        if (come_count) {
            struct iovec records[WRITERS_MAX];
            for (int k = 0; k < come_count; k++)
                records[k] = (struct iovec){chunks[come[k]].frame + FRAME_BYTES - RECORD_BYTES, RECORD_BYTES};
            require(writev(file, records, come_count) == come_count * RECORD_BYTES, "append");
            require(!fdatasync(file), "sync");
            for (int k = 0; k < come_count; k++) {
                chunks[come[k]].is_stored = 1;
                if (!after || chunks[come[k]].is_acknowledged) done[done_count++] = come[k];
            }
        }
        for (int k = 0; k < done_count; k++) {
            struct chunk *chunk = &chunks[done[k]];
            chunk->is_stored = chunk->is_acknowledged = 0;
            size_t length = awaited + RECEIPT_BYTES;
            require(send(chunk->upstream, chunk->receipts, length, 0) == (ssize_t)length, "acknowledge");
        }
    }
    exit(0);
}

static double seconds_since(const struct timespec *begun) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - begun->tv_sec) + (double)(now.tv_nsec - begun->tv_nsec) / 1e9;
}

int main(int count, char **words) {
    require(count == 4, "usage: bare_hops WRITERS SECONDS DIRECTORY");
    int writers = atoi(words[1]), listening[HOPS], sockets[WRITERS_MAX];
    double seconds = atof(words[2]);
    struct sockaddr_in addresses[HOPS];
    require(writers > 0 && writers <= WRITERS_MAX && seconds > 0, "WRITERS or SECONDS");
    for (int i = 0; i < HOPS; i++) listening[i] = listener(&addresses[i]);
    for (int i = HOPS - 1; i >= 0; i--) {
        pid_t made = fork();
        require(made >= 0, "fork");
        if (!made) hop(listening[i], &addresses[i + 1 < HOPS ? i + 1 : i], writers, HOPS - 1 - i, words[3]);
    }
    static unsigned char frame[FRAME_BYTES], receipts[HOPS * RECEIPT_BYTES];
    size_t received[WRITERS_MAX] = {0};
    long acknowledged = 0;
    int poll = epoll_create1(0);
    for (int i = 0; i < writers; i++) watch(poll, sockets[i] = connection(&addresses[0]), (uint32_t)i);
    struct timespec begun;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (int i = 0; i < writers; i++) require(send(sockets[i], frame, FRAME_BYTES, 0) == FRAME_BYTES, "send");
    for (int under_way = writers; under_way;) {
        struct epoll_event events[WRITERS_MAX];
        int found = epoll_wait(poll, events, WRITERS_MAX, -1);
        for (int k = 0; k < found; k++) {
            uint32_t i = events[k].data.u32;
            ssize_t got = recv(sockets[i], receipts, sizeof receipts - received[i], 0);
            require(got > 0, "the head");
            if ((received[i] += (size_t)got) < sizeof receipts) continue;
            received[i] = 0, acknowledged++;
            /* Nothing is under way when the writers hang up. */
            if (seconds_since(&begun) < seconds)
                require(send(sockets[i], frame, FRAME_BYTES, 0) == FRAME_BYTES, "send");
            else
                under_way--;
        }
    }
    double taken = seconds_since(&begun);
    for (int i = 0; i < writers; i++) close(sockets[i]);
    for (int i = 0; i < HOPS; i++) {
        int status;
        require(wait(&status) > 0 && !status, "a hop failed");
    }
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("%ld %f %f\n", acknowledged, taken, cpu);
    return 0;
}

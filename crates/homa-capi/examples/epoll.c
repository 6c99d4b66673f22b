/* Keeps many calls in progress from one thread that sleeps in epoll: epoll HOST PORT CALLS WINDOW
 *
 * The cookie of a call is its number, which is compared with its answer.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <homa.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

static struct sockaddr_in server;

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, homa_strerror(errno));
    return 1;
}

/* Sends a request in two pieces: a number, and bytes whose length depends on it. */
static int send_call(int sock, uint32_t number)
{
    static const char filler[3000];
    struct homa_send_options options = HOMA_SEND_OPTIONS_INIT;
    struct iovec pieces[2];

    pieces[0].iov_base = &number;
    pieces[0].iov_len = sizeof number;
    pieces[1].iov_base = (void *) filler;
    pieces[1].iov_len = number % sizeof filler;
    options.completion_cookie = number;
    return homa_sendv(sock, pieces, 2, (struct sockaddr *) &server, sizeof server, NULL, &options);
}

static int take_answer(int sock, unsigned char *seen)
{
    struct homa_message answer = { .id = 0 };
    uint32_t number;

    if (homa_recv_message(sock, HOMA_RECV_NONBLOCKING, &answer) < 0)
        return -1;
    memcpy(&number, answer.data, sizeof number);
    if (number != answer.completion_cookie || answer.length != sizeof number + number % 3000
        || seen[number]++) {
        fprintf(stderr, "call %u: a wrong answer\n", number);
        exit(1);
    }
    homa_message_release(&answer);
    return 0;
}

int main(int argc, char **argv)
{
    struct epoll_event event = { .events = EPOLLIN };
    uint32_t calls, window, sent = 0, done = 0;
    unsigned char *seen;
    int sock, epoll;

    server.sin_family = AF_INET;
    if (argc != 5 || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1) {
        fprintf(stderr, "usage: epoll HOST PORT CALLS WINDOW\n");
        return 2;
    }
    server.sin_port = htons((uint16_t) strtoul(argv[2], NULL, 10));
    calls = (uint32_t) strtoul(argv[3], NULL, 10);
    window = (uint32_t) strtoul(argv[4], NULL, 10);
    seen = calloc(calls, 1);

    sock = homa_socket(NULL, 0, NULL);
    epoll = epoll_create1(0);
    if (sock < 0 || epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, sock, &event) < 0)
        return fail("cannot open a socket");
    while (done < calls) {
        while (sent < calls && sent - done < window) {
            if (send_call(sock, sent) < 0)
                return fail("cannot send");
            sent++;
        }
        if (epoll_wait(epoll, &event, 1, -1) < 0 && errno != EINTR)
            return fail("cannot wait");
        while (take_answer(sock, seen) == 0)
            done++;
        if (errno != EAGAIN)
            return fail("cannot receive");
    }
    printf("%u calls\n", done);
    free(seen);
    return homa_close(sock) < 0 ? fail("cannot close") : 0;
}

/* Several threads send, receive and answer on the same two sockets, which are clients and servers
 * of each other. Then one closes a socket in which others wait. Signals go to the program.
 */
#include "check.h"
#include <pthread.h>
#include <signal.h>

enum { CLIENTS = 4, SERVERS = 3, CALLS = 300 };
static int socks[2];
static struct sockaddr_in at[2];

static void *client(void *argument)
{
    int me = *(int *) argument, i;
    char request[2000], response[2000];
    memset(request, me, sizeof request);
    for (i = 0; i < CALLS; i++) {
        int length = 1 + i * 31 % 2000;
        uint64_t id;
        CHECK(homa_send(socks[me % 2], request, (size_t) length, AT(at[1 - me % 2]), &id) == 0);
        CHECK(homa_recv(socks[me % 2], response, sizeof response, HOMA_RECV_RESPONSE, NULL, 0, &id)
              == length);
        CHECK(memcmp(request, response, (size_t) length) == 0);
    }
    return NULL;
}

static void *server(void *argument)
{
    int me = *(int *) argument;
    char request[2000];
    for (;;) {
        struct sockaddr_in from;
        uint64_t id;
        int got = homa_recv(socks[me % 2], request, sizeof request, HOMA_RECV_REQUEST, AT(from),
                            &id);
        if (got < 0) {
            CHECK(errno == ESHUTDOWN || errno == EBADF);
            return NULL;
        }
        CHECK(homa_reply(socks[me % 2], request, (size_t) got, AT(from), id) == 0);
    }
}

/* If the program blocks a signal and waits for it, no thread of libhoma may take it. That would end
 * the process.
 */
static void signals(void)
{
    sigset_t ours, before;
    int taken = 0, sock = homa_socket(NULL, 0, NULL);
    CHECK(sock >= 0);
    sigemptyset(&ours);
    sigaddset(&ours, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &ours, &before) == 0);
    CHECK(sigismember(&before, SIGUSR1) == 0 && sigismember(&before, SIGTERM) == 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(sigwait(&ours, &taken) == 0 && taken == SIGUSR1);
    CHECK(homa_close(sock) == 0);
}

int main(void)
{
    pthread_t threads[2 * (CLIENTS + SERVERS)];
    int numbers[2 * (CLIENTS + SERVERS)], i;

    signals();
    socks[0] = serve(&at[0], NULL);
    socks[1] = serve(&at[1], NULL);
    for (i = 0; i < 2 * (CLIENTS + SERVERS); i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, i < 2 * CLIENTS ? client : server, &numbers[i])
              == 0);
    }
    for (i = 0; i < 2 * CLIENTS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    /* Every request and every response was received. */
    CHECK(readable(socks[0], 0) == 0 && readable(socks[1], 0) == 0);
    CHECK(homa_close(socks[0]) == 0 && homa_close(socks[1]) == 0);
    for (; i < 2 * (CLIENTS + SERVERS); i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}

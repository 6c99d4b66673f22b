/* Answers every request with its own bytes: echo_server PORT [COUNT]
 *
 * With COUNT it ends after that many requests. Port 0 is any free port, which is printed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <homa.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, homa_strerror(errno));
    return 1;
}

int main(int argc, char **argv)
{
    struct sockaddr_in at;
    socklen_t at_length = sizeof at;
    unsigned long left;
    int sock;

    if (argc < 2) {
        fprintf(stderr, "usage: echo_server PORT [COUNT]\n");
        return 2;
    }
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_port = htons((uint16_t) strtoul(argv[1], NULL, 10));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    left = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;

    sock = homa_socket((struct sockaddr *) &at, sizeof at, NULL);
    if (sock < 0 || homa_getsockname(sock, (struct sockaddr *) &at, &at_length) < 0)
        return fail("cannot open a socket");
    printf("listening on port %d\n", ntohs(at.sin_port));
    fflush(stdout);

    do {
        /* The message is not copied, and the reply reads from its memory. */
        struct homa_message request = { .id = 0 };
        if (homa_recv_message(sock, HOMA_RECV_REQUEST, &request) < 0)
            return fail("cannot receive");
        if (homa_reply(sock, request.data, request.length, (struct sockaddr *) &request.source,
                       request.source_length, request.id) < 0)
            return fail("cannot reply");
        homa_message_release(&request);
    } while (left == 0 || --left > 0);

    /* Let the last answers arrive. */
    if (homa_drain(sock, 5000) < 0)
        return fail("cannot finish");
    return homa_close(sock) < 0 ? fail("cannot close") : 0;
}

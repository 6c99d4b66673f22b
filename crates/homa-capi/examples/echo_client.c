/* Sends requests of several sizes to an echo server, one after the other, and checks the answers:
 * echo_client HOST PORT
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
    static const size_t sizes[] = { 1, 100, 1400, 20000, 500000 };
    static char request[500000], response[500000];
    struct sockaddr_in server;
    size_t i, n;
    int sock;

    memset(&server, 0, sizeof server);
    server.sin_family = AF_INET;
    if (argc != 3 || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1) {
        fprintf(stderr, "usage: echo_client HOST PORT\n");
        return 2;
    }
    server.sin_port = htons((uint16_t) strtoul(argv[2], NULL, 10));
    for (i = 0; i < sizeof request; i++)
        request[i] = (char) (i * 7 + i / 251);

    /* Only a client, at any port. */
    sock = homa_socket(NULL, 0, NULL);
    if (sock < 0)
        return fail("cannot open a socket");
    for (n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        uint64_t sent, id = 0;
        int got;
        if (homa_send(sock, request, sizes[n], (struct sockaddr *) &server, sizeof server,
                      &sent) < 0)
            return fail("cannot send");
        got = homa_recv(sock, response, sizeof response, HOMA_RECV_RESPONSE, NULL, 0, &id);
        if (got < 0)
            return fail("no response");
        if (id != sent || (size_t) got != sizes[n] || memcmp(request, response, sizes[n]) != 0) {
            fprintf(stderr, "%d bytes came back, not the %zu sent\n", got, sizes[n]);
            return 1;
        }
        printf("%zu bytes\n", sizes[n]);
    }
    return homa_close(sock) < 0 ? fail("cannot close") : 0;
}

/* libhoma: RPCs with low tail latency, in user space. See homa(7).
 *
 * Generated from the sources of libhoma: do not edit.
 */

#ifndef HOMA_H
#define HOMA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Initial values of structures that begin with their size. */
#define HOMA_OPTIONS_INIT { sizeof(struct homa_options), NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, \
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL }
#define HOMA_SEND_OPTIONS_INIT { sizeof(struct homa_send_options), 0, 0, 0 }
#define HOMA_BALANCE_OPTIONS_INIT { sizeof(struct homa_balance_options), 0, 0, 0, 0 }

/*
 Flag of homa_options: exchanges plaintext with other hosts, by choice. Hosts on the path can
 read and forge every packet.
 */
#define HOMA_PLAINTEXT 1

/*
 Value of padding in homa_options: datagrams have the full size that the path takes.
 */
#define HOMA_PADDING_FULL 4294967295

/*
 Flag of homa_keys_open: allows early data, so that a call to a server without a session takes
 one round trip instead of two. An attacker on the path can have such a request executed twice.
 */
#define HOMA_EARLY_DATA 16

/*
 Flag of a private call: its completion is returned only by a homa_recv that names its id, and
 does not make the descriptor readable.
 */
#define HOMA_SEND_PRIVATE 1

/*
 Flag of a call: the server may execute the request twice. Then the call survives a restart of
 the server. Only the profile "default" uses it. With the other profiles every request may be
 executed twice.
 */
#define HOMA_SEND_IDEMPOTENT 2

/*
 Flag of a call: homa_read reads the response while it arrives.
 */
#define HOMA_SEND_PIECES 4

/*
 Flag of homa_recv: requests may be returned. If neither this flag nor HOMA_RECV_RESPONSE is set,
 requests and ends of calls may be returned.
 */
#define HOMA_RECV_REQUEST 1

/*
 Flag of homa_recv: the end of a call may be returned. If *id is not 0, only the end of that
 call.
 */
#define HOMA_RECV_RESPONSE 2

/*
 Flag of homa_recv: fail with EAGAIN instead of blocking. MSG_DONTWAIT means the same.
 */
#define HOMA_RECV_NONBLOCKING 4

/*
 Flag of homa_recv: if the message is longer than the buffer, keep the rest instead of dropping
 it. Further calls with this flag and the same *id return it. *id must be initialized.
 */
#define HOMA_RECV_PARTIAL 8

/*
 Flag of homa_balance_options: if no server is known, calls wait for one until their deadline.
 */
#define HOMA_BALANCE_WAIT 1

/*
 Flag of homa_balance_options: calls are never repeated at another server.
 */
#define HOMA_BALANCE_NO_RETRIES 2

/*
 Flag of homa_balance_options: calls are never sent to a second server because the first is slow.
 */
#define HOMA_BALANCE_NO_HEDGES 4

/*
 A name that stands for several servers.
 */
struct homa_balancer;

/*
 Keys that several sockets share, with the tickets that servers have issued to them.
 */
struct homa_keys;

/*
 Options of a socket. Initialize them with HOMA_OPTIONS_INIT. A member that is zero or null has
 its default. Later versions add members at the end. Then `size` tells libhoma which members the
 program has.
 */
struct homa_options {
    /*
     sizeof(struct homa_options).
     */
    size_t size;
    /*
     How packets are sent: "udp" (default; no privileges), "raw-ip" (IP protocol 146, as the
     kernel module; needs CAP_NET_RAW) or "memory" (between sockets of this process, for tests).
     */
    const char *driver;
    /*
     The rules of the protocol: "default", "linux" (default of raw-ip),
     "linux-upstream" or "sigcomm18".
     */
    const char *profile;
    /*
     How the IP header carries priorities: "operator" (default; CS0-CS5), "linux" (default of
     raw-ip; CS0-CS7) or "flat" (not at all).
     */
    const char *priority_map;
    /*
     How long a call may take before it fails with ETIMEDOUT, in milliseconds. Default: 10,000.
     */
    uint32_t deadline_ms;
    /*
     The longest message that is sent or accepted, in bytes. Default: 16 MiB, or 1,000,000 with
     "linux".
     */
    uint32_t max_message;
    /*
     The largest number of calls in progress, and of requests. Default: 100,000 each.
     */
    uint32_t max_rpcs;
    /*
     The rate of the link in Mbit/s, for all peers. If it is set, packets leave at no more than
     this rate. Default: the rate of the interface by which the route to each peer leads. If that
     rate is unknown, sending is paced by the kernel's queue, and windows are measured ("linux"
     assumes 25 Gbit/s instead).
     */
    uint32_t link_mbps;
    /*
     The limit of the bytes of outgoing messages. Default: 1 GiB.
     */
    uint64_t send_memory;
    /*
     The limit of the bytes of incoming messages. Default: 256 MiB.
     */
    uint64_t receive_memory;
    /*
     The size of the largest IP packet, in bytes, at least 576. Default: the MTU of the route and
     the path to each peer, up to 9000.
     */
    uint32_t mtu;
    /*
     HOMA_PLAINTEXT or 0.
     */
    uint32_t flags;
    /*
     A file with the key of the cluster (`homa key new`), with which every packet is encrypted
     and both ends are verified. Peers need the same key. Not with raw-ip. Without a key,
     packets are plaintext: over UDP only on loopback, unless HOMA_PLAINTEXT is set.
     */
    const char *key_file;
    /*
     PEM files with which every packet is encrypted and both ends are verified by certificates:
     the certificate of this socket, followed by those that lead to its authority; its private
     key; and the authorities that vouch for peers. Changed files are read by themselves. All of
     them or none, and not with key_file.
     */
    const char *cert_file;
    /*
     The private key of cert_file.
     */
    const char *cert_key_file;
    /*
     The authorities.
     */
    const char *ca_file;
    /*
     The name that servers must prove with their certificates: a DNS name or an IP address.
     Default: the address that is called.
     */
    const char *server_name;
    /*
     Decides whether a verified peer may exchange packets with this socket: returns 0 to refuse
     it. The identity is what homa_peer_identity returns, and is valid during the call. Any
     thread may call it while the socket is open, also several at once. It must return at once,
     and must not call functions of libhoma. It needs keys, key_file or cert_file. Default: all
     verified peers.
     */
    int (*admit)(const char *identity, void *user);
    /*
     The second argument of admit.
     */
    void *admit_user;
    /*
     If it is not 0, homa_recv returns each request as soon as its first packet is here, and
     homa_read reads its bytes while they arrive. At most about twice this number of unread bytes
     is held of each message that homa_read reads. If it is 0, homa_recv returns whole requests,
     and the number for responses (HOMA_SEND_PIECES) is 1 MiB. Default: 0.
     */
    uint32_t early;
    /*
     Pads encrypted datagrams, so that a host on the path learns less about the lengths of
     messages: to a multiple of this number of bytes, at most 65,535, or to the full size with
     HOMA_PADDING_FULL. It costs bandwidth, and needs keys, key_file or cert_file. Peers need not
     set it. Default: 0, no padding.
     */
    uint32_t padding;
    /*
     The largest number of calls in progress to one server, so that a server that hangs does not
     take all of max_rpcs. With raw-ip, to one host. Another call fails with EAGAIN. Default: 0,
     no limit.
     */
    uint32_t max_calls_per_server;
    /*
     How many peers are remembered. Idle ones are forgotten first, and with them which of their
     requests were executed. Default: 65,536.
     */
    uint32_t max_peers;
    /*
     Keys of homa_keys_open, in place of key_file: sockets with the same keys share tickets. They
     may be closed once the socket is open. Default: none.
     */
    const struct homa_keys *keys;
};

/*
 Options of a call. Initialize them with HOMA_SEND_OPTIONS_INIT. For `size`, see struct
 homa_options.
 */
struct homa_send_options {
    /*
     sizeof(struct homa_send_options).
     */
    size_t size;
    /*
     A number that is returned with the response, in struct homa_message.
     */
    uint64_t completion_cookie;
    /*
     HOMA_SEND_PRIVATE, HOMA_SEND_IDEMPOTENT, HOMA_SEND_PIECES, or several of them.
     */
    uint32_t flags;
    /*
     How long the call may take, in milliseconds. 0 means the deadline in the socket's options.
     */
    uint32_t deadline_ms;
};

/*
 A message whose memory libhoma lends, filled in by homa_recv_message.
 */
struct homa_message {
    /*
     Before the call: the same as *id of homa_recv. After it: the RPC's id, which is even for the
     end of a call and odd for a request.
     */
    uint64_t id;
    /*
     For a response, the number given with the call. For a request, 0.
     */
    uint64_t completion_cookie;
    /*
     The bytes of the message, which may be changed in place.
     */
    void *data;
    /*
     The number of bytes.
     */
    size_t length;
    /*
     The length of `source`.
     */
    socklen_t source_length;
    /*
     The sender's address.
     */
    struct sockaddr_storage source;
    /*
     For libhoma only.
     */
    void *owner;
};

/*
 Options of a balancer. Initialize them with HOMA_BALANCE_OPTIONS_INIT. A member that is zero has
 its default. For `size`, see struct homa_options.
 */
struct homa_balance_options {
    /*
     sizeof(struct homa_balance_options).
     */
    size_t size;
    /*
     HOMA_BALANCE_WAIT, HOMA_BALANCE_NO_RETRIES, HOMA_BALANCE_NO_HEDGES, or several of them.
     */
    uint32_t flags;
    /*
     The largest share of calls that are repeated at another server, in percent. Default: 20. Ten
     calls a second are repeated in any case.
     */
    uint32_t retry_percent;
    /*
     The largest share of calls that are also sent to a second server, in percent. Default: 5.
     */
    uint32_t hedge_percent;
    /*
     After how many microseconds a call is late, so that it is sent to a second server, too.
     Default: the time that 95 % of recent calls did not exceed.
     */
    uint32_t hedge_after_us;
};

#ifdef __cplusplus
extern "C" {
#endif /* __cplusplus */

/*
 Reads the key file of a cluster (`homa key new`), for the member `keys` in the options of any
 number of sockets. Those sockets share the tickets of the servers that they have called, so the
 next one begins a session with less work. A changed file is read by itself, and ends all
 tickets.

 With HOMA_EARLY_DATA in `flags` of both ends, a client with a ticket sends requests beside its
 handshake: those with HOMA_SEND_IDEMPOTENT of at most about 1,000 bytes. The child of a fork may
 open sockets with the keys of its parent, but has none of its tickets.

 Returns the keys, or NULL with errno: EFAULT (`key_file` is null), EINVAL (an unknown flag, or
 the file has no valid key), ENOENT, EACCES (the file cannot be read, or other users can read or
 write it), and other errors of open(2).
 */
struct homa_keys *homa_keys_open(const char *key_file, uint32_t flags);

/*
 Gives keys up. Sockets that were opened with them keep them until they are closed. Does nothing
 if the pointer is null.
 */
void homa_keys_close(struct homa_keys *keys);

/*
 Opens a socket, which is a client and a server at once, for any number of peers.

 If an address is given (port 0: any free port), it accepts requests there. If the address is
 null, it is only a client, at any port. Over UDP, an address that is not on loopback needs a key
 file or HOMA_PLAINTEXT, and so do calls to other hosts. If `options` is null, all options have
 their defaults.

 The descriptor is readable exactly if homa_recv would not fail with EAGAIN. Watch it with poll,
 select or epoll. Do not read or write it, and close it with homa_close.

 Returns the descriptor, or -1: EINVAL (a wrong option, named by homa_strerror), E2BIG (an option
 of a later version), ENOENT or EACCES (the key file), EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT,
 EPERM (raw-ip without CAP_NET_RAW), ENOKEY (an address that is not on loopback, and neither a
 key file nor HOMA_PLAINTEXT), EMFILE and other errors of bind(2).
 */
int homa_socket(const struct sockaddr *bind_addr,
                socklen_t addrlen,
                const struct homa_options *options);

/*
 Opens a socket, as homa_socket does, over a UDP socket that is already bound, for example one
 that systemd passes (descriptor 3, if LISTEN_FDS is set). It accepts requests, also those that
 wait in the queue. The options of `fd` are changed, but the descriptor is not used any more, and
 may be closed. Only one process should use the UDP socket at a time.

 Returns the descriptor, or -1: ENOTSOCK (`fd` is closed, or no socket), EINVAL (`fd` is not a
 UDP socket of IPv4 or IPv6 that is bound and not connected, or an option is wrong; homa_strerror
 says which), ENOKEY (as homa_socket), EMFILE.
 */
int homa_socket_from_fd(int fd, const struct homa_options *options);

/*
 Writes the address of a socket, and sets *addrlen to its length. If the address is longer than
 the old *addrlen, only that many bytes are written to `addr`.

 Returns 0, or -1: EBADF, EFAULT.
 */
int homa_getsockname(int sockfd, struct sockaddr *addr, socklen_t *addrlen);

/*
 Shuts a socket down gracefully. New calls and requests are refused. Blocks until every RPC in
 progress is finished and acknowledged, or `timeout_ms` have passed (negative: no limit; 0: does
 not wait). Messages that have arrived, and the ends of calls in progress, can still be received,
 also by threads that already wait. After that, homa_recv fails with ESHUTDOWN, and the
 descriptor stays readable. If a call was sent early (HOMA_EARLY_DATA), it also waits for the end
 of the handshake, with which the ticket for the next socket comes unless it is lost. Call
 homa_close when done.

 Returns 0, or -1: EBADF, ETIMEDOUT (some RPCs are unfinished; homa_strerror says how many).
 */
int homa_drain(int sockfd, int timeout_ms);

/*
 Closes a socket and ends its RPCs. Calls are forgotten, and replies that are not yet fully
 delivered are lost, so call homa_drain first if they matter. Threads that wait in homa_recv,
 homa_read or homa_balancer_call return with ESHUTDOWN. Buffers from homa_recv_message stay
 valid.

 Returns 0, or -1: EBADF. This is also the result if the descriptor was closed with close(2) by
 mistake. Then the socket is closed, but a new file with the same number is not.
 */
int homa_close(int sockfd);

/*
 Writes the counters of a socket as OpenMetrics text, and a zero byte, at most `len` bytes in
 total. `buf` may be null if `len` is 0.

 Returns the length of the whole text without the zero byte, as snprintf does, or -1: EBADF,
 EFAULT. If the result is at least `len`, the text was cut.
 */
int homa_metrics(int sockfd, char *buf, size_t len);

/*
 Returns the version of libhoma, for example "0.1.0".
 */
const char *homa_version(void);

/*
 Sends a request to a server. homa_recv will return the response or error with the same id, which
 is even and never 0. `id` may be null, except with HOMA_SEND_PRIVATE, because only the id brings
 that response.

 Never blocks. The request is copied, so the caller may reuse `request` at once. It is sent by a
 thread that waits in homa_recv, or by a thread of libhoma.

 Returns 0, or -1: EBADF; EFAULT (a null pointer); EINVAL (no bytes with a profile other than
 "default", no port, or not the address of a single host); EMSGSIZE; EAFNOSUPPORT; EAGAIN (too
 many calls or bytes in progress: receive some responses first); ENOBUFS (too many peers); ENOKEY
 (another host, and neither a key file nor HOMA_PLAINTEXT); ENOMEM; ESHUTDOWN.
 */
int homa_send(int sockfd,
              const void *request,
              size_t reqlen,
              const struct sockaddr *dest_addr,
              socklen_t addrlen,
              uint64_t *id);

/*
 As homa_send, with a request in `iovcnt` pieces and options of the call (null: defaults).
 */
int homa_sendv(int sockfd,
               const struct iovec *iov,
               int iovcnt,
               const struct sockaddr *dest_addr,
               socklen_t addrlen,
               uint64_t *id,
               const struct homa_send_options *options);

/*
 Answers the request `id` that homa_recv returned. `dest_addr` must be the address that it
 returned with the request, or null, because the id is enough. Never blocks, and copies
 `response`. Returns 0 if the client has given up meanwhile. The rest of the request that
 HOMA_RECV_PARTIAL kept is dropped.

 Returns 0, or -1: EBADF; EFAULT (a null pointer); EINVAL (no bytes with a profile other than
 "default", or no request with this id and address waits for a reply: it was answered or aborted
 before, or never received); EMSGSIZE; EAGAIN (too many bytes in progress); ENOMEM. After
 EMSGSIZE, EAGAIN and ENOMEM the request still waits.
 */
int homa_reply(int sockfd,
               const void *response,
               size_t resplen,
               const struct sockaddr *dest_addr,
               socklen_t addrlen,
               uint64_t id);

/*
 As homa_reply, with a response in `iovcnt` pieces.
 */
int homa_replyv(int sockfd,
                const struct iovec *iov,
                int iovcnt,
                const struct sockaddr *dest_addr,
                socklen_t addrlen,
                uint64_t id);

/*
 Stores in *microseconds how long the client will still wait for the answer to a request. 0 means
 that the client gave up or its deadline has passed, so the work can be stopped. UINT64_MAX means
 that the client did not tell, as clients that use the kernel module or an old build. Requests
 whose deadline passes before they are received are dropped.

 Returns 0, or -1: EBADF; EFAULT; EINVAL (no request with this id waits for an answer).
 */
int homa_remaining(int sockfd, uint64_t id, uint64_t *microseconds);

/*
 Writes who the client of a request has proved to be, and a zero byte, at most `len` bytes in
 total: "cluster" if it holds the key of the cluster, or the first name in its certificate (a URI
 such as a SPIFFE id, otherwise a DNS name; "certificate" if it has neither). The text is empty
 if the socket has no key. `buf` may be null if `len` is 0.

 Returns the length of the whole text without the zero byte, or -1: EBADF; EFAULT; EINVAL (no
 request with this id waits for an answer).
 */
int homa_peer_identity(int sockfd, uint64_t id, char *buf, size_t len);

/*
 Cancels an RPC. A call (even id) is also cancelled at its server. If `error` is 0, homa_recv
 never returns the call. Otherwise homa_recv returns it as failed with that errno. A request (odd
 id) will not be answered, and its client's call fails at once. With id 0, all calls in progress
 are cancelled.

 Returns 0, or -1: EBADF; EINVAL (a negative error, or no such RPC: its end was received, or it
 was answered).
 */
int homa_abort(int sockfd, uint64_t id, int error);

/*
 Receives a request, or the response or error of a call. Blocks until there is one, unless a flag
 says otherwise. While it waits, the thread does the socket's work itself, which is the fastest
 way to receive. Any number of threads may wait.

 At most `len` bytes are copied to `buf` (which may be null if `len` is 0). The sender's address
 is written to `src_addr`, at most `addrlen` bytes, and the RPC's id to *id. Both may be null.
 Each request must be answered with homa_reply, or dropped with homa_abort.

 Returns the length of the message. If it is greater than `len`, the rest is lost. With
 HOMA_RECV_PARTIAL the rest is kept, and the result is the length that was left before this call.
 With the option `early`, nothing of a request is copied, nor of a response with
 HOMA_SEND_PIECES: homa_read reads it. The result is its whole length, or, if homa_read failed
 with EAGAIN before, the length that was not read.

 If a call failed, returns -1 and sets *id to the call: ETIMEDOUT (no response within the
 deadline, or the server is silent), ENOTCONN (nothing listens at its port), EHOSTUNREACH,
 EPROTONOSUPPORT, EMSGSIZE (longer than a side accepts), ECONNRESET (the server restarted or is
 gone, and may or may not have executed the call), ECONNABORTED (the server's handler ended
 without an answer), EBUSY (the server is overloaded and did not execute it), EKEYREJECTED (one
 end does not accept the other's key, or has none; the call was not executed), EIO (the engine's
 descriptors were closed by mistake), the error with which the system refuses to send to that
 address (EACCES, EINVAL and others; the call was not executed), or the error given to
 homa_abort.

 If nothing was received, returns -1 and sets *id to 0: EAGAIN; EINVAL (unknown flags, or no call
 with the id); ESHUTDOWN (after homa_close or homa_drain); EBADF; EFAULT.
 */
int homa_recv(int sockfd,
              void *buf,
              size_t len,
              int flags,
              struct sockaddr *src_addr,
              socklen_t addrlen,
              uint64_t *id);

/*
 As homa_recv, but without copying. The message stays in libhoma's memory. The caller may use it
 in any thread until homa_message_release, also after homa_close. Set message->id to 0 first, or
 to the call's id as for homa_recv. HOMA_RECV_PARTIAL cannot be used. message->data is null if
 homa_read reads the message.

 Returns 0, or -1 as homa_recv. If a call failed, message->id is its id, and its cookie and
 server are set. Otherwise message->id is 0. There is nothing to release in both cases.
 */
int homa_recv_message(int sockfd, int flags, struct homa_message *message);

/*
 Frees a message's memory. Does nothing if the pointer is null, or if the message is all zeroes
 or was released before.
 */
void homa_message_release(struct homa_message *message);

/*
 Reads the next bytes of a message that arrives: of a request that homa_recv returned from a
 socket with the option `early`, or of the response to a call with HOMA_SEND_PIECES, which need
 not be received first. Copies at most `len` bytes, which is not 0. Blocks until there are some,
 unless `flags` is HOMA_RECV_NONBLOCKING or MSG_DONTWAIT. The peer may send about as many more
 bytes as were read, so a slow reader slows it down. One thread at a time should read a message:
 while one waits, a read that does not wait fails with EAGAIN.

 After EAGAIN, homa_recv returns the message again once more has arrived or it has ended, and the
 descriptor is readable then, unless the call is private. A request may be answered at any time:
 then the rest of it is not sent.

 Returns the number of bytes, 0 after the last, or -1. For a request: ECANCELED (the client gave
 up) or ETIMEDOUT (its deadline has passed): the rest will not come, and what was read may be
 incomplete. The request still has to be answered, or dropped with homa_abort. For a response:
 the errors of a failed call, as of homa_recv. After these, and after 0, the call has ended.
 For both: EAGAIN; EBADF; EFAULT; EINVAL (wrong flags, `len` is 0, or no message with this id is
 read); ESHUTDOWN (homa_close).
 */
int homa_read(int sockfd, void *buf, size_t len, int flags, uint64_t id);

/*
 As homa_sendv, but only the length of the request is given. homa_write gives its bytes, and
 sends them while the program makes the rest. The deadline of the call includes the writing.
 homa_abort gives the call up.

 Returns 0, or -1 as homa_send: the declared length counts as bytes in progress from the
 beginning (EAGAIN).
 */
int homa_send_begin(int sockfd,
                    size_t reqlen,
                    const struct sockaddr *dest_addr,
                    socklen_t addrlen,
                    uint64_t *id,
                    const struct homa_send_options *options);

/*
 As homa_reply, but only the length of the response is given. homa_write gives its bytes, and
 sends them while the program makes the rest. homa_abort gives the response up, and the client's
 call fails with ECONNABORTED.

 Returns 0, or -1 as homa_reply: the declared length counts as bytes in progress from the
 beginning (EAGAIN).
 */
int homa_reply_begin(int sockfd,
                     size_t resplen,
                     const struct sockaddr *dest_addr,
                     socklen_t addrlen,
                     uint64_t id);

/*
 Sends the next bytes of the request of call `id` (homa_send_begin), or of the response to
 request `id` (homa_reply_begin). With the last byte of its declared length the message is whole.
 Never blocks, and copies the bytes.

 Returns 0, or -1: EBADF; EFAULT; EMSGSIZE (more than the declared length; nothing was sent);
 EPIPE (the client gave up, or the call has ended, which homa_recv returns; or no message with
 this id is written).
 */
int homa_write(int sockfd, const void *buf, size_t len, uint64_t id);

/*
 Looks up a name that stands for several servers, now and again until homa_balancer_close:
 "homa:///HOST:PORT" (all addresses of a host), "homa+file:///PATH" (a file with an address
 IP:PORT in each line), "homa+srv://NAME" (SRV records of DNS, if libhoma was built with the
 feature srv), or "homa+srv://NAMESERVER:PORT/NAME" (those of one name server). If `options` is
 null, all options have their defaults. Does not wait for the addresses: homa_balancer_call does.

 Returns the balancer, or NULL with errno: EFAULT (`target` is null), EINVAL (no target, or a
 wrong option), EAGAIN and other errors of pthread_create(3).
 */
struct homa_balancer *homa_balancer_open(const char *target,
                                         const struct homa_balance_options *options);

/*
 Calls one of the servers from a socket, and blocks until the response is here. Any number of
 threads may call. A call that was certainly not executed is repeated at another server. With
 HOMA_SEND_IDEMPOTENT it is also repeated if a server lost it, and sent to a second server if it
 is late. All attempts end at the deadline of the call, or when the socket is closed. The other
 members of `options` (null: defaults) have no effect.

 The response is lent in `message` as by homa_recv_message: release it. Its id and its source are
 0.

 Returns 0, or -1: as homa_send and homa_recv; EHOSTUNREACH (no server is known); ETIMEDOUT (also
 if none was known before the deadline); ESHUTDOWN (also if none was known before homa_close or
 homa_drain); EBADF (also if the balancer was opened before fork); EFAULT; EINVAL. `message`
 is then all zeroes.
 */
int homa_balancer_call(struct homa_balancer *balancer,
                       int sockfd,
                       const void *request,
                       size_t reqlen,
                       struct homa_message *message,
                       const struct homa_send_options *options);

/*
 Stops looking the name up, and frees the balancer. No call of it may be in progress. Does
 nothing if the pointer is null.
 */
void homa_balancer_close(struct homa_balancer *balancer);

/*
 Describes an errno. If it is the errno of the thread's last failed libhoma call, the text says
 what was wrong with this call and what to do next. Otherwise the text is that of strerror(3).

 The text belongs to libhoma, and is valid until the same thread calls a libhoma function again.
 The text of the last failed call also stays valid during calls of homa_strerror for other
 errnos. Never null.
 */
const char *homa_strerror(int error);

#ifdef __cplusplus
}  // extern "C"
#endif  /* __cplusplus */

#endif  /* HOMA_H */

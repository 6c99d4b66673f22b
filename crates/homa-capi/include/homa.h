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

/* How structures that begin with their size start out. */
#define HOMA_OPTIONS_INIT { sizeof(struct homa_options), NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0 }
#define HOMA_SEND_OPTIONS_INIT { sizeof(struct homa_send_options), 0, 0, 0 }

/*
 Flag of a call: its end is returned only by a homa_recv that names its id, and does not make the
 descriptor readable.
 */
#define HOMA_SEND_PRIVATE 1

/*
 Flag of a call: the server may execute it twice. Then it survives a server that restarts. Only
 the profile "default" asks; with the others every call may be executed twice.
 */
#define HOMA_SEND_IDEMPOTENT 2

/*
 Flag of homa_recv: a request may be returned. With neither this nor HOMA_RECV_RESPONSE, all may.
 */
#define HOMA_RECV_REQUEST 1

/*
 Flag of homa_recv: the end of a call may be returned; of only that call whose id *id holds,
 unless it holds 0.
 */
#define HOMA_RECV_RESPONSE 2

/*
 Flag of homa_recv: fail with EAGAIN instead of blocking. MSG_DONTWAIT means the same.
 */
#define HOMA_RECV_NONBLOCKING 4

/*
 Flag of homa_recv: keep what does not fit into the buffer for further calls with this flag and
 the same *id, instead of dropping it. *id must be initialised.
 */
#define HOMA_RECV_PARTIAL 8

/*
 Options of a socket. Start from HOMA_OPTIONS_INIT; a zero or null member means its default.
 Later versions add members at the end: `size` tells which this program knows.
 */
struct homa_options {
    /*
     sizeof(struct homa_options).
     */
    size_t size;
    /*
     "udp" (default; no privileges), "raw-ip" (IP protocol 146, as the kernel module; needs
     CAP_NET_RAW) or "memory" (sockets of this process only, for tests).
     */
    const char *driver;
    /*
     Rules of the protocol: "default", "linux" (default of raw-ip) or "sigcomm18".
     */
    const char *profile;
    /*
     How priorities travel in the IP header: "operator" (default; CS0-CS5), "linux" (default of
     raw-ip; CS0-CS7) or "flat" (none).
     */
    const char *priority_map;
    /*
     How long a call may take before it fails with ETIMEDOUT, milliseconds. Default 10,000.
     */
    uint32_t deadline_ms;
    /*
     Longest message sent or accepted, bytes. Default: 16 MiB, with "linux" 1,000,000.
     */
    uint32_t max_message;
    /*
     Most calls in progress, and most requests. Default 100,000 each.
     */
    uint32_t max_rpcs;
    /*
     Rate of the link, Mbit/s, the same for all peers; packets also leave at no more than this
     rate. Default: of the interface that the route to each peer takes; where nobody tells it,
     packets leave as the kernel's queue empties, and what the protocol would take from it is
     measured (with "linux" it counts on 25 Gbit/s in any case).
     */
    uint32_t link_mbps;
    /*
     Bytes of outgoing messages held at a time. Default 1 GiB.
     */
    uint64_t send_memory;
    /*
     Bytes of incoming messages held at a time. Default 256 MiB.
     */
    uint64_t receive_memory;
    /*
     Largest IP packet, bytes, at least 576. Default: what the route and the path to each peer
     take, up to 9000.
     */
    uint32_t mtu;
    /*
     Must be 0.
     */
    uint32_t flags;
};

/*
 Options of a call. Start from HOMA_SEND_OPTIONS_INIT; see struct homa_options on `size`.
 */
struct homa_send_options {
    /*
     sizeof(struct homa_send_options).
     */
    size_t size;
    /*
     Comes back with the response, in struct homa_message.
     */
    uint64_t completion_cookie;
    /*
     HOMA_SEND_PRIVATE, HOMA_SEND_IDEMPOTENT or both.
     */
    uint32_t flags;
    /*
     How long the call may take, milliseconds. 0: as the socket's options say.
     */
    uint32_t deadline_ms;
};

/*
 A message that libhoma lends, filled in by homa_recv_message.
 */
struct homa_message {
    /*
     In: as *id of homa_recv. Out: the RPC; even for the end of a call, odd for a request.
     */
    uint64_t id;
    /*
     Of a response: the number given with the call. Of a request: 0.
     */
    uint64_t completion_cookie;
    /*
     The bytes of the message, which may be changed in place.
     */
    void *data;
    /*
     Their number.
     */
    size_t length;
    /*
     Length of `source`.
     */
    socklen_t source_length;
    /*
     Who sent it.
     */
    struct sockaddr_storage source;
    /*
     libhoma's own.
     */
    void *owner;
};

#ifdef __cplusplus
extern "C" {
#endif /* __cplusplus */

/*
 Opens a socket, client and server at once, for any number of peers.

 With an address (port 0: any free one) it accepts requests there. With a null address it is only
 a client, at any port. `options` may be null: all defaults.

 The descriptor is readable exactly when homa_recv would not fail with EAGAIN: watch it with
 poll, select or epoll, but neither read nor write it, and close it with homa_close.

 Returns the descriptor, or -1: EINVAL (an option, homa_strerror says which), EADDRINUSE,
 EADDRNOTAVAIL, EAFNOSUPPORT, EPERM (raw-ip without CAP_NET_RAW), EMFILE and others of bind(2).
 */
int homa_socket(const struct sockaddr *bind_addr,
                socklen_t addrlen,
                const struct homa_options *options);

/*
 Tells where a socket is bound: at most *addrlen bytes are written to `addr`, and *addrlen is set
 to the length of the whole address.

 Returns 0, or -1: EBADF, EFAULT.
 */
int homa_getsockname(int sockfd, struct sockaddr *addr, socklen_t *addrlen);

/*
 Finishes gracefully: from here on nothing new is sent or accepted, and the call blocks until
 every RPC in progress is finished and acknowledged, or `timeout_ms` have passed (negative: no
 limit; 0: does not wait). What has arrived, and the ends of calls in progress, can still be
 received, also by threads that wait for them; then homa_recv fails with ESHUTDOWN, and the
 descriptor stays readable. homa_close has yet to be called.

 Returns 0, or -1: EBADF, ETIMEDOUT (some RPCs are unfinished; homa_strerror says how many).
 */
int homa_drain(int sockfd, int timeout_ms);

/*
 Closes a socket and ends what is in progress: calls are forgotten, replies that were not
 delivered whole are lost (homa_drain first if they matter), threads that wait in homa_recv
 return with ESHUTDOWN. Buffers from homa_recv_message stay valid.

 Returns 0, or -1: EBADF (also when the descriptor was closed with close(2), by mistake: the
 socket is closed then, and a file that has got its number is not).
 */
int homa_close(int sockfd);

/*
 Writes what a socket has counted, as OpenMetrics text, and a zero byte: at most `len` bytes
 altogether. `buf` may be null if `len` is 0.

 Returns the length of the whole text without the zero byte (as snprintf: at least `len` means
 that it was cut), or -1: EBADF, EFAULT.
 */
int homa_metrics(int sockfd, char *buf, size_t len);

/*
 The version of libhoma, such as "0.1.0".
 */
const char *homa_version(void);

/*
 Sends a request to a server. Its response, or that it failed, will be returned by homa_recv with
 the same id, which is even and never 0. `id` may be null, unless only it can bring the response
 (HOMA_SEND_PRIVATE).

 Never blocks: the request is copied, so `request` is the caller's again, and sent by the thread
 that waits in homa_recv or by a thread of libhoma.

 Returns 0, or -1: EBADF; EFAULT (a null pointer); EINVAL (no bytes, no port, or an
 address of many hosts); EMSGSIZE; EAFNOSUPPORT; EAGAIN (too many calls or bytes in progress:
 receive some responses first); ENOBUFS (too many peers); ENOMEM; ESHUTDOWN.
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
 Answers the request `id` that homa_recv returned, at the address it returned with it (null: `id`
 is enough). Never blocks; `response` is copied. That the client has given up meanwhile is no
 error. What HOMA_RECV_PARTIAL kept of the request is dropped.

 Returns 0, or -1: EBADF; EFAULT (a null pointer); EINVAL (no bytes, or no request with this id
 from this address waits: it was answered or aborted before, or never received); EMSGSIZE;
 EAGAIN (too many bytes in progress); ENOMEM. After EMSGSIZE, EAGAIN and ENOMEM the request still
 waits.
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
 Says how long the client will still wait for the answer to a request, in *microseconds: 0 when
 it gave up, or its time is over, so that there is no use in going on; UINT64_MAX where it did
 not say (over UDP it does, unless it is a build of before; the kernel module does not). Requests
 whose time is over before they are received are dropped.

 Returns 0, or -1: EBADF; EFAULT; EINVAL (no request with this id waits for an answer).
 */
int homa_remaining(int sockfd, uint64_t id, uint64_t *microseconds);

/*
 Gives up an RPC. A call (even id) is cancelled, also at its server: with `error` 0 nothing more
 is heard of it, otherwise homa_recv returns it as failed with that errno. A request (odd id)
 will not be answered, and its client's call fails at once. With id 0, all calls in progress are
 given up.

 Returns 0, or -1: EBADF; EINVAL (a negative error, or no such RPC: its end was received, or it
 was answered).
 */
int homa_abort(int sockfd, uint64_t id, int error);

/*
 Receives a message: a request, the response to a call, or that a call failed. Blocks until there
 is one, unless told otherwise; meanwhile the thread does the socket's work itself, which is the
 fastest way. Any number of threads may wait.

 At most `len` bytes are copied to `buf` (which may be null if `len` is 0). The sender's address
 is written to `src_addr`, which may be null, as far as `addrlen` bytes reach; the RPC's id to
 *id, which may be null. A request must be answered with homa_reply or given up with homa_abort.

 Returns the length of the message, which may be greater than `len`: then the rest is lost, or,
 with HOMA_RECV_PARTIAL, kept, and the length is that of what was left before this call.

 Returns -1 with *id not 0 when that call failed: ETIMEDOUT (no response within the deadline, or
 the server is silent), ENOTCONN (nothing listens at its port), EHOSTUNREACH, EPROTONOSUPPORT,
 EMSGSIZE (longer than a side accepts), ECONNRESET (the server restarted or is gone, and
 may or may not have executed it), or the error given to homa_abort.

 Returns -1 with *id 0 when nothing was received: EAGAIN; EINVAL (unknown flags, or no call with
 the id); ESHUTDOWN (after homa_close or homa_drain); EBADF; EFAULT.
 */
int homa_recv(int sockfd,
              void *buf,
              size_t len,
              int flags,
              struct sockaddr *src_addr,
              socklen_t addrlen,
              uint64_t *id);

/*
 As homa_recv, without copying: the message stays in libhoma's memory, which is the caller's to
 use, by any thread, until homa_message_release, also after homa_close. Set message->id to 0
 before (or as *id of homa_recv). HOMA_RECV_PARTIAL is not for this function.

 Returns 0, or -1 as homa_recv; message->id is then 0 or the call that failed, with its cookie
 and server, and there is nothing to release.
 */
int homa_recv_message(int sockfd, int flags, struct homa_message *message);

/*
 Gives a message's memory back. A message that was released, or is all zeroes, is left alone, and
 so is a null pointer.
 */
void homa_message_release(struct homa_message *message);

/*
 What an errno means. If it is that of the last failed libhoma call of this thread, the text says
 what was wrong with this call and what to do next; otherwise it is as of strerror(3).

 The text belongs to libhoma and is valid until the next call of a libhoma function by the same
 thread (calls for different errnos leave that of the last failure alone). Never null.
 */
const char *homa_strerror(int error);

#ifdef __cplusplus
}  // extern "C"
#endif  /* __cplusplus */

#endif  /* HOMA_H */

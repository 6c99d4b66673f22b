//! Calls to a name that stands for several servers: balancing, retries and hedging.
//!
//! A call blocks its thread, which polls the future of the call. A thread of libhoma, one for the
//! process, looks names up and has the timers.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::future::Future;
use std::pin::pin;
use std::ptr::null_mut;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use homa::balance::{BalanceError, Balancer, Config, Target};
use homa::{CallError, CallOptions, Message};

use crate::error::{Error, guard};
use crate::options::read_sized;
use crate::receive::{homa_message, lend};
use crate::send::{Given, HOMA_SEND_IDEMPOTENT, homa_send_options, read_options};
use crate::table;

/// Flag of homa_balance_options: if no server is known, calls wait for one until their deadline.
pub const HOMA_BALANCE_WAIT: u32 = 1;
/// Flag of homa_balance_options: calls are never repeated at another server.
pub const HOMA_BALANCE_NO_RETRIES: u32 = 2;
/// Flag of homa_balance_options: calls are never sent to a second server because the first is slow.
pub const HOMA_BALANCE_NO_HEDGES: u32 = 4;

/// Options of a balancer. Initialize them with HOMA_BALANCE_OPTIONS_INIT. A member that is zero has
/// its default. For `size`, see struct homa_options.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct homa_balance_options {
    /// sizeof(struct homa_balance_options).
    pub size: usize,
    /// HOMA_BALANCE_WAIT, HOMA_BALANCE_NO_RETRIES, HOMA_BALANCE_NO_HEDGES, or several of them.
    pub flags: u32,
    /// The largest share of calls that are repeated at another server, in percent. Default: 20. Ten
    /// calls a second are repeated in any case.
    pub retry_percent: u32,
    /// The largest share of calls that are also sent to a second server, in percent. Default: 5.
    pub hedge_percent: u32,
    /// After how many microseconds a call is late, so that it is sent to a second server, too.
    /// Default: the time that 95 % of recent calls did not exceed.
    pub hedge_after_us: u32,
}

/// A name that stands for several servers.
#[allow(non_camel_case_types)]
pub struct homa_balancer(Balancer);

/// Looks up a name that stands for several servers, now and again until homa_balancer_close:
/// "homa:///HOST:PORT" (all addresses of a host), "homa+file:///PATH" (a file with an address
/// IP:PORT in each line), "homa+srv://NAME" (SRV records of DNS, if libhoma was built with the
/// feature srv), or "homa+srv://NAMESERVER:PORT/NAME" (those of one name server). If `options` is
/// null, all options have their defaults. Does not wait for the addresses: homa_balancer_call does.
///
/// Returns the balancer, or NULL with errno: EFAULT (`target` is null), EINVAL (no target, or a
/// wrong option), EAGAIN and other errors of pthread_create(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_balancer_open(
    target: *const c_char,
    options: *const homa_balance_options,
) -> *mut homa_balancer {
    let mut opened = null_mut();
    guard(|| {
        if target.is_null() {
            return Err(Error::null("target"));
        }
        // SAFETY: not null, and the caller guarantees that it ends with a zero byte.
        let target = unsafe { CStr::from_ptr(target) };
        let target = target.to_str().map_err(|_| Error::invalid("`target` is not UTF-8"))?;
        let target: Target = target.parse().map_err(|error| Error::invalid(format!("{error}")))?;
        // SAFETY: the caller guarantees the options.
        let config = unsafe { config(options)? };
        let balancer = Balancer::detached(target, config)?;
        opened = Box::into_raw(Box::new(homa_balancer(balancer)));
        Ok(0)
    });
    opened
}

/// # Safety
///
/// `options` is null or points to options with their `size`.
unsafe fn config(options: *const homa_balance_options) -> Result<Config, Error> {
    let mut config = Config::default();
    if options.is_null() {
        return Ok(config);
    }
    // SAFETY: the caller guarantees the size, and zeroes are a value of these numbers.
    let given = unsafe { read_sized(options, "options")? };
    let known = HOMA_BALANCE_WAIT | HOMA_BALANCE_NO_RETRIES | HOMA_BALANCE_NO_HEDGES;
    if given.flags & !known != 0 {
        return Err(Error::invalid(format!("unknown bits in `options->flags`: {}", given.flags)));
    }
    if given.retry_percent.max(given.hedge_percent) > 100 {
        return Err(Error::invalid("a share in `options` is more than 100 percent"));
    }
    config.wait_for_ready = given.flags & HOMA_BALANCE_WAIT != 0;
    if given.retry_percent != 0 {
        config.retry_budget = f64::from(given.retry_percent) / 100.0;
    }
    if given.hedge_percent != 0 {
        config.hedge_budget = f64::from(given.hedge_percent) / 100.0;
    }
    if given.hedge_after_us != 0 {
        config.hedge_after = Some(Duration::from_micros(given.hedge_after_us.into()));
    }
    if given.flags & HOMA_BALANCE_NO_RETRIES != 0 {
        config.retry_budget = 0.0;
    }
    if given.flags & HOMA_BALANCE_NO_HEDGES != 0 {
        config.hedge_budget = 0.0;
    }
    Ok(config)
}

/// Calls one of the servers from a socket, and blocks until the response is here. Any number of
/// threads may call. A call that was certainly not executed is repeated at another server. With
/// HOMA_SEND_IDEMPOTENT it is also repeated if a server lost it, and sent to a second server if it
/// is late. All attempts end at the deadline of the call, or when the socket is closed. The other
/// members of `options` (null: defaults) have no effect.
///
/// The response is lent in `message` as by homa_recv_message: release it. Its id and its source are
/// 0.
///
/// Returns 0, or -1: as homa_send and homa_recv; EHOSTUNREACH (no server is known); ETIMEDOUT (also
/// if none was known before the deadline); ESHUTDOWN (also if none was known before homa_close or
/// homa_drain); EBADF (also if the balancer was opened before fork); EFAULT; EINVAL. `message`
/// is then all zeroes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_balancer_call(
    balancer: *mut homa_balancer,
    sockfd: c_int,
    request: *const c_void,
    reqlen: usize,
    message: *mut homa_message,
    options: *const homa_send_options,
) -> c_int {
    guard(|| {
        if message.is_null() {
            return Err(Error::null("message"));
        }
        // SAFETY: the caller guarantees the structure, and all zeroes are a value of it.
        unsafe { message.write(std::mem::zeroed()) };
        if balancer.is_null() {
            return Err(Error::null("balancer"));
        }
        // SAFETY: not null, and the caller guarantees a balancer that was not closed.
        let homa_balancer(balancer) = unsafe { &*balancer };
        let handle = table::get(sockfd)?;
        let mut call = CallOptions::deadline(handle.deadline);
        if !options.is_null() {
            // SAFETY: the caller guarantees the options.
            let given = unsafe { read_options(options)? };
            if given.deadline_ms != 0 {
                call.deadline = Duration::from_millis(given.deadline_ms.into());
            }
            call.idempotent = given.flags & HOMA_SEND_IDEMPOTENT != 0;
        }
        // SAFETY: the caller guarantees the request.
        let bytes = unsafe { Given::One(request, reqlen).gather("request", handle.max_message)? };
        let client = handle.socket.client();
        let response: Message = block_on(balancer.call(&client, bytes, &call))?;
        // SAFETY: as above.
        lend(response, unsafe { &mut *message });
        Ok(0)
    })
}

/// Stops looking the name up, and frees the balancer. No call of it may be in progress. Does
/// nothing if the pointer is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_balancer_close(balancer: *mut homa_balancer) {
    guard(|| {
        if !balancer.is_null() {
            // SAFETY: `homa_balancer_open` made it from a box, and the caller closes it once.
            drop(unsafe { Box::from_raw(balancer) });
        }
        Ok(0)
    });
}

impl From<BalanceError> for Error {
    fn from(error: BalanceError) -> Self {
        match error {
            BalanceError::Call(CallError::Forked) => {
                Self::new(libc::EBADF, "the balancer was opened before fork(): open one")
            }
            BalanceError::Call(error) => error.into(),
            error @ BalanceError::Late => Self::new(libc::ETIMEDOUT, error.to_string()),
            error => Self::new(libc::EHOSTUNREACH, error.to_string()),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

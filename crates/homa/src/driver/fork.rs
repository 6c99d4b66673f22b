//! The identity of the process. The child of a fork has the sockets and ids of its parent, but none
//! of its threads.

#[cfg(feature = "balance")]
use std::ptr::null_mut;
use std::sync::Once;
#[cfg(feature = "balance")]
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks between the first process of this program and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process in which a value was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// This process.
    pub fn this() -> Self {
        static WATCHES: Once = Once::new();
        WATCHES.call_once(|| {
            // SAFETY: the handler is a function without captured state that only counts.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// False in a child that was forked since.
    pub fn is_this(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }
}

/// A value that each process has for itself. The child of a fork does not use its parent's, which
/// another thread may have had locked. Values are never freed.
#[cfg(feature = "balance")]
#[derive(Debug)]
pub struct PerProcess<T>(AtomicPtr<(Process, T)>);

#[cfg(feature = "balance")]
impl<T: Default + Send + Sync> PerProcess<T> {
    /// No process has a value yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// The value of this process, which has its default at the first use.
    pub fn get(&'static self) -> &'static T {
        let before = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null or came from a box that is never freed.
        match unsafe { before.as_ref() } {
            Some((process, value)) if process.is_this() => return value,
            _ => {}
        }
        let new = Box::into_raw(Box::new((Process::this(), T::default())));
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let value = match self.0.compare_exchange(before, new, order.0, order.1) {
            Ok(_) => new,
            Err(first) => {
                // SAFETY: `new` came from a box, and is not shared.
                drop(unsafe { Box::from_raw(new) });
                first
            }
        };
        // SAFETY: as above; another thread of this process stored it if it is not ours.
        unsafe { &(*value).1 }
    }
}

/// Forks of tests.
#[cfg(test)]
pub mod children {
    /// The child of a fork.
    pub struct Child(libc::pid_t);

    /// Forks; `None` in the child, which has to [`exit`], and is killed if it hangs.
    pub fn fork() -> Option<Child> {
        // SAFETY: the child only uses its copies, and exits without unwinding into the harness.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: sets a timer of this process.
            unsafe { libc::alarm(60) };
            return None;
        }
        Some(Child(child))
    }

    /// Ends the child at once.
    pub fn exit(passed: bool) -> ! {
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!passed)) }
    }

    impl Child {
        /// Waits for the child; false if it failed or hung.
        pub fn passed(self) -> bool {
            let mut status = 0;
            // SAFETY: waits for our own child, and writes to a local variable.
            assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
            status == 0
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::net::SocketAddr;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::children;
    use crate::inline::{self, Wait};
    use crate::{CallError, CallOptions, Client, Config, Engine, OpenError, ReplyError, Server};

    /// Ends the process if a balancer does not refuse a call.
    #[cfg(feature = "balance")]
    fn refuses(balancer: &crate::balance::Balancer, client: &Client) {
        let options = CallOptions::default();
        let mut call = pin!(balancer.call(client, "child", &options));
        let ended = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let forked = crate::balance::BalanceError::Call(CallError::Forked).to_string();
        if !matches!(ended, Poll::Ready(Err(error)) if error.to_string() == forked) {
            children::exit(false);
        }
    }

    #[test]
    fn the_child_of_a_fork_is_refused_and_disturbs_nothing() {
        let at: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let server = Server::bind(at).unwrap();
        let (to, client) = (server.local_addr(), Client::new().unwrap());
        let held = client.call_async(to, "held");
        let request = server.accept().unwrap();
        let sharded = Engine::sharded(at, 2, Config::default()).unwrap();
        let (shards, of_all) = (sharded.serve().unwrap(), sharded.client());
        let mut alone = inline::Engine::bind(at, Config::default()).unwrap();
        #[cfg(feature = "balance")]
        let balancer = {
            let target = "homa:///localhost:4000".parse().unwrap();
            crate::balance::Balancer::detached(target, crate::balance::Config::default()).unwrap()
        };
        let Some(child) = children::fork() else {
            let options = CallOptions::default();
            let replied = request.reply("child");
            #[cfg(feature = "balance")]
            refuses(&balancer, &client);
            let refused = client.call(to, "child") == Err(CallError::Forked)
                && alone.call(to, "child", 1, &options) == Err(CallError::Forked)
                && alone.poll(Wait::No).is_err()
                && server.accept().is_none()
                && of_all.call(to, "child") == Err(CallError::Forked)
                && shards.iter().all(|shard| shard.accept().is_none())
                && matches!(sharded.serve(), Err(OpenError::Forked))
                && matches!(server.engine().serve_at(at), Err(OpenError::Forked))
                && matches!(replied, Err(refused) if refused.error == ReplyError::Forked);
            drop((held, alone, server, client, shards, of_all, sharded));
            children::exit(refused);
        };
        assert!(child.passed(), "the child saw something else");
        // The parent's call and request were not affected.
        request.reply("done").unwrap();
        let mut held = pin!(held);
        let response = loop {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(result) = held.as_mut().poll(&mut context) {
                break result.unwrap();
            }
            std::thread::yield_now();
        };
        assert_eq!(response, *b"done");
        // Its shards were not affected, either.
        let call = Client::new().unwrap().call_async(sharded.local_addr(), "shards");
        let mut call = pin!(call);
        let mut context = Context::from_waker(Waker::noop());
        while call.as_mut().poll(&mut context).is_pending() {
            for shard in &shards {
                if let Poll::Ready(Some(request)) = pin!(shard.accept_async()).poll(&mut context) {
                    request.reply("done").unwrap();
                }
            }
            std::thread::yield_now();
        }
        sharded.drain(Duration::from_secs(60)).unwrap();
    }
}

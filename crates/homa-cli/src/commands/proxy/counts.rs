//! What a proxy counts: calls, and what it refused.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why something was refused before it was a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyRefusal {
    /// A call of gRPC over HTTP/1.1.
    Http1,
    /// CONNECT, to a proxy that calls one server, or to no host and port.
    Connect,
    /// A call of gRPC by a method other than POST.
    Method,
    /// More calls in progress than `--concurrency` allows.
    Full,
    /// Bytes that are not HTTP or break its rules, whose connection was closed, and requests that
    /// servers could read in different ways.
    Protocol,
}

impl ProxyRefusal {
    const ALL: [Self; 5] = [Self::Http1, Self::Connect, Self::Method, Self::Full, Self::Protocol];

    /// Its label in metrics.
    fn label(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Connect => "connect",
            Self::Method => "method",
            Self::Full => "full",
            Self::Protocol => "protocol",
        }
    }
}

/// Counters of a proxy.
#[derive(Debug, Default)]
pub struct ProxyCounts {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Calls that ended with a status of the proxy, not of the server.
    failed: AtomicU64,
    refused: [AtomicU64; ProxyRefusal::ALL.len()],
}

/// Counts a call as in progress until it is dropped.
#[derive(Debug)]
pub struct CallInProgress(Arc<ProxyCounts>);

impl Drop for CallInProgress {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl ProxyCounts {
    /// A call begins.
    pub fn begin(self: &Arc<Self>) -> CallInProgress {
        self.begun.fetch_add(1, Ordering::Relaxed);
        CallInProgress(self.clone())
    }

    /// The other side could not be asked, or did not answer to the end.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Something was refused.
    pub fn refused(&self, why: ProxyRefusal) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// One line about all of it.
    pub fn summary(&self) -> String {
        let refused: u64 = self.refused.iter().map(read).sum();
        let (calls, failed) = (read(&self.begun), read(&self.failed));
        format!("forwarded {calls} calls, {failed} of them failed on the way; refused {refused}")
    }

    /// The counters as OpenMetrics text.
    pub fn to_openmetrics(&self) -> String {
        // In this order, so that the number in progress is never negative.
        let (ended, begun) = (read(&self.ended), read(&self.begun));
        let mut text = format!(
            "# HELP homa_proxy_calls Calls that the proxy forwarded.\n\
             # TYPE homa_proxy_calls counter\n\
             homa_proxy_calls_total {begun}\n\
             # HELP homa_proxy_calls_in_progress Calls that have not ended.\n\
             # TYPE homa_proxy_calls_in_progress gauge\n\
             homa_proxy_calls_in_progress {}\n\
             # HELP homa_proxy_failed Calls that ended with a status of the proxy.\n\
             # TYPE homa_proxy_failed counter\n\
             homa_proxy_failed_total {}\n\
             # HELP homa_proxy_refused Requests and connections that were no calls, or too many.\n\
             # TYPE homa_proxy_refused counter\n",
            begun.saturating_sub(ended),
            read(&self.failed),
        );
        for (why, count) in ProxyRefusal::ALL.into_iter().zip(&self.refused) {
            let (why, count) = (why.label(), read(count));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "homa_proxy_refused_total{{reason=\"{why}\"}} {count}");
        }
        text
    }
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

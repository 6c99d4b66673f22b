//! What the server's endpoint tells about the calls of its clients.

use std::collections::BTreeMap;

use super::advice::FEW;
use super::groups::{groups, slowest};
use crate::commands::scrape::Scrape;

/// Mean times of a server's requests of one size, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerTime {
    /// Of the slow ones: until they were taken, and from then on.
    pub accept: f64,
    pub application: f64,
    /// Both together, of the fastest.
    pub fastest: f64,
}

/// How much of calls of one size was the server's time, if its endpoint tells.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ServerView {
    /// Its endpoint was not given.
    #[default]
    NotAsked,
    /// It followed so few requests of this size, perhaps none.
    Few(f64),
    Known(ServerTime),
}

impl ServerView {
    /// The time, if it is known.
    pub fn time(self) -> Option<ServerTime> {
        match self {
            Self::Known(time) => Some(time),
            Self::NotAsked | Self::Few(_) => None,
        }
    }

    /// The number of requests, if they are too few.
    pub fn few(self) -> Option<f64> {
        match self {
            Self::Few(followed) => Some(followed),
            Self::NotAsked | Self::Known(_) => None,
        }
    }
}

/// What a server tells, by size.
pub struct ServerPage(BTreeMap<String, ServerView>);

impl ServerPage {
    /// From two scrapes of the server.
    pub fn between(before: &Scrape, after: &Scrape) -> Self {
        let groups = groups(before, after).into_iter();
        let servers = groups.filter(|((direction, _), _)| direction == "server");
        let view = servers.map(|((_, size), groups)| {
            let (slow, of) = slowest(&groups);
            let mean = |stage| slow.time(stage) / slow.rpcs.max(1.0);
            let fastest = groups.values().find(|group| group.rpcs > 0.0);
            let fastest = fastest.map_or(0.0, |group| {
                (group.time("accept") + group.time("application")) / group.rpcs
            });
            let time =
                ServerTime { accept: mean("accept"), application: mean("application"), fastest };
            let known = if of < FEW { ServerView::Few(of) } else { ServerView::Known(time) };
            (size, known)
        });
        Self(view.collect())
    }

    /// What it tells about calls of a size.
    pub fn of(&self, size: &str) -> ServerView {
        self.0.get(size).copied().unwrap_or(ServerView::Few(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_followed_few_requests_does_not_know_its_time() {
        let page = |direction: &str, rpcs: f64, seconds: f64| {
            let labels = format!("direction=\"{direction}\",size=\"short\",up_to=\"0.001\"");
            let stage = |name: &str, time: f64| {
                format!("homa_rpc_stage_seconds_total{{{labels},stage=\"{name}\"}} {time}\n")
            };
            Scrape::parse(&format!(
                "homa_rpc_stage_rpcs_total{{{labels}}} {rpcs}\n{}{}",
                stage("accept", seconds),
                stage("application", 3.0 * seconds)
            ))
        };
        let none = Scrape::parse("");
        let of = |page: &Scrape, size: &str| ServerPage::between(&none, page).of(size);
        assert_eq!(of(&none, "short"), ServerView::Few(0.0));
        assert_eq!(of(&page("client", 90.0, 0.9), "short"), ServerView::Few(0.0));
        assert_eq!(of(&page("server", 9.0, 0.9), "short"), ServerView::Few(9.0));
        assert_eq!(of(&page("server", 10.0, 0.9), "long"), ServerView::Few(0.0));
        let time = ServerTime { accept: 0.09, application: 0.27, fastest: 0.36 };
        assert_eq!(of(&page("server", 10.0, 0.9), "short"), ServerView::Known(time));
        let all = page("server", 10.0, 0.9);
        let idle = ServerPage::between(&all, &all);
        assert_eq!(idle.of("short"), ServerView::Few(0.0), "what it did before is not counted");
    }
}

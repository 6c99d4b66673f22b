//! The congestion control of a queue pair: one of the algorithms of this folder. They are variants
//! of one type, so that the simulator is compiled once for all of them.

use homa_proto::Time;

use super::control::{Collected, Lost, RateControl, RateRange, RateSignal};
use super::telemetry::Carried;
use super::{Dcqcn, DctcpRate, Hpcc, PowerTcp, Swift, ThetaPowerTcp, Timely};

macro_rules! controls {
    ($($name:ident),*) => {
        /// The parameters of a congestion control.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum ControlConfig {
            $(#[doc = concat!("Those of [`", stringify!($name), "`].")]
            $name(<$name as RateControl>::Config)),*
        }

        impl ControlConfig {
            /// What a data packet carries when it leaves its host.
            pub(super) fn carried(&self, now: Time, unit: u32) -> Carried {
                match self {
                    $(Self::$name(_) => {
                        <$name as RateControl>::Collected::new(now, unit).carried()
                    })*
                }
            }
        }

        /// The congestion control of a pair; see [`RateControl`] for its methods.
        #[derive(Clone, Debug)]
        pub(super) enum Control {
            $($name($name)),*
        }

        impl Control {
            pub fn new(config: &ControlConfig, range: RateRange) -> Self {
                match config {
                    $(ControlConfig::$name(config) => Self::$name($name::new(config, range))),*
                }
            }

            pub fn rate(&self) -> u64 {
                match self { $(Self::$name(control) => control.rate()),* }
            }

            pub fn window(&self, full: u32, link: u64) -> u32 {
                match self { $(Self::$name(control) => control.window(full, link)),* }
            }

            pub fn moves_next(&self) -> bool {
                match self { $(Self::$name(_) => <$name as RateControl>::MOVES_NEXT),* }
            }

            pub fn deadline(&self) -> Option<Time> {
                match self { $(Self::$name(control) => control.deadline()),* }
            }

            pub fn acknowledged(&mut self, config: &ControlConfig, signal: &RateSignal<Carried>) {
                match (self, config) {
                    $((Self::$name(control), ControlConfig::$name(config)) => {
                        if let Some(signal) = signal.of() {
                            control.acknowledged(config, &signal);
                        }
                    })*
                    _ => unreachable!("{}", OTHER),
                }
            }

            pub fn lost(&mut self, config: &ControlConfig, now: Time, lost: Lost) {
                match (self, config) {
                    $((Self::$name(control), ControlConfig::$name(config)) => {
                        control.lost(config, now, lost);
                    })*
                    _ => unreachable!("{}", OTHER),
                }
            }

            pub fn expire(&mut self, config: &ControlConfig, now: Time) {
                match (self, config) {
                    $((Self::$name(control), ControlConfig::$name(config)) => {
                        control.expire(config, now);
                    })*
                    _ => unreachable!("{}", OTHER),
                }
            }
        }
    };
}

const OTHER: &str = "a control is made from the parameters of its host";

controls!(Hpcc, Dcqcn, Timely, DctcpRate, PowerTcp, ThetaPowerTcp, Swift);

//! The memory of all switches: the bytes of each level of each input, and the pool of each switch.

use crate::engine::pauses::{Rates, link_pair, note_rate, reverse_links};
use crate::fabric::shared::{LevelMemory, MemoryPlace, WHOLE};
use crate::fabric::{FabricConfig, NONE, SharedConfig};
use crate::time::SimTime;
use crate::topology::{PortId, PortSpec, Wiring};
use homa_proto::Rate;

/// The end of a link at a switch.
#[derive(Clone, Debug)]
struct Input {
    levels: [LevelMemory; 8],
    /// Its switch, numbered from 0; `NONE` if the link ends at a host.
    switch: u32,
    /// Largest share of the pool's free bytes, parts of a million.
    alpha: u32,
    /// Wire bytes of each level's headroom.
    headroom: u64,
}

/// The memory that the inputs of a switch share.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Pool {
    /// Wire bytes, without what inputs have to themselves.
    pub size: u64,
    /// Wire bytes in use.
    pub used: u64,
}

impl Pool {
    /// The most bytes that a level of an input may take.
    #[inline]
    pub fn limit(self, alpha: u32) -> u64 {
        let free = u128::from(self.size - self.used.min(self.size));
        (free * u128::from(alpha) / u128::from(WHOLE)) as u64
    }
}

/// The state of all switches that share memory.
#[derive(Debug, Default)]
pub(in crate::engine) struct SharedSwitches {
    config: Option<SharedConfig>,
    /// By link.
    inputs: Vec<Input>,
    /// By switch.
    pools: Vec<Pool>,
    /// By switch: its output ports.
    outputs_of: Vec<Vec<u32>>,
    /// By port: an event at the end of the transmission is pending.
    pub awaited: Vec<bool>,
    back: Vec<u32>,
    /// By link: later rates.
    rates: Rates,
}

impl SharedSwitches {
    /// The state of a network's switches; empty unless they share memory.
    pub fn new(wiring: &Wiring, config: &FabricConfig) -> Self {
        config.shared.map_or_else(Self::default, |shared| Self::of(wiring, shared))
    }

    fn of(wiring: &Wiring, config: SharedConfig) -> Self {
        let (ports, hosts) = (wiring.ports(), wiring.hosts());
        let switches = wiring.switches() as usize;
        let mut shared = Self {
            config: Some(config),
            inputs: Vec::with_capacity(ports.len()),
            pools: vec![Pool::default(); switches],
            outputs_of: vec![Vec::new(); switches],
            awaited: vec![false; ports.len()],
            back: reverse_links(ports),
            rates: Rates::new(),
        };
        for (port, spec) in (0..).zip(ports) {
            shared.inputs.push(Input {
                levels: [LevelMemory::default(); 8],
                switch: spec.to.0.checked_sub(hosts).unwrap_or(NONE),
                alpha: config.alpha_at(spec.rate),
                headroom: 0,
            });
            if let Some(switch) = spec.from.0.checked_sub(hosts) {
                shared.outputs_of[switch as usize].push(port);
            }
        }
        shared.size(ports, 0..ports.len() as u32);
        shared
    }

    /// Finds the headroom of these inputs, and the rest, for the pools.
    fn size(&mut self, ports: &[PortSpec], links: impl IntoIterator<Item = u32>) {
        let Some(config) = self.config else { return };
        for link in links {
            let Some((way, back)) = link_pair(ports, (&self.back, &self.rates), link) else {
                continue;
            };
            self.inputs[link as usize].headroom = config.headroom_over(way, back);
        }
        let aside = self.aside(config);
        for (pool, aside) in self.pools.iter_mut().zip(aside) {
            pool.size = config.memory.saturating_sub(aside);
        }
    }

    /// Wire bytes that the inputs of each switch have to themselves.
    fn aside(&self, config: SharedConfig) -> Vec<u64> {
        let mut aside = vec![0; self.pools.len()];
        for input in &self.inputs {
            if let Some(aside) = aside.get_mut(input.switch as usize) {
                *aside += config.set_aside(input.headroom);
            }
        }
        aside
    }

    /// Announces that a link has another rate from a time on, so that headrooms suffice for it from
    /// the beginning.
    pub fn expect_rate(&mut self, ports: &[PortSpec], (link, at, rate): (u32, SimTime, Rate)) {
        note_rate(&mut self.rates, (link, at, rate));
        let back = self.back[link as usize];
        self.size(ports, [link, back].into_iter().filter(|link| *link != NONE));
    }

    /// Takes memory for a frame of a level that came over a link; false if there is none.
    #[inline]
    pub fn take(&mut self, (link, level): (u32, u8), bytes: u32) -> bool {
        let Some(config) = self.config.filter(|config| config.exempt >> level & 1 == 0) else {
            return true;
        };
        let input = &mut self.inputs[link as usize];
        let pool = &mut self.pools[input.switch as usize];
        let memory = &mut input.levels[usize::from(level & 7)];
        let rooms = (config.reserve, pool.limit(input.alpha), input.headroom);
        match memory.place(bytes, rooms) {
            MemoryPlace::Pool(pooled) => {
                memory.held += bytes;
                pool.used += u64::from(pooled);
            }
            MemoryPlace::Headroom => memory.headroom += bytes,
            MemoryPlace::Lost => return false,
        }
        true
    }

    /// Frees the memory of a frame.
    #[inline]
    pub fn release(&mut self, (link, level): (u32, u8), bytes: u32) {
        let Some(config) = self.config.filter(|config| config.exempt >> level & 1 == 0) else {
            return;
        };
        let input = &mut self.inputs[link as usize];
        let pooled = input.levels[usize::from(level & 7)].release(bytes, config.reserve);
        self.pools[input.switch as usize].used -= u64::from(pooled);
    }

    /// Whether a level of an input should be paused, given whether it is.
    #[inline]
    pub fn is_to_pause(&self, (link, level): (u32, u8), is_paused: bool) -> bool {
        let Some(config) = self.config.filter(|config| config.exempt >> level & 1 == 0) else {
            return false;
        };
        let input = &self.inputs[link as usize];
        let memory = input.levels[usize::from(level & 7)];
        let limit = self.pools[input.switch as usize].limit(input.alpha);
        match is_paused {
            true => !memory.resumes((config.reserve, config.resume_gap), limit),
            false => memory.pauses(config.reserve, limit),
        }
    }
}

#[cfg(test)]
impl SharedSwitches {
    /// The bytes of a level at the end of a link.
    pub fn level(&self, (link, level): (u32, u8)) -> LevelMemory {
        self.inputs[link as usize].levels[usize::from(level)]
    }

    /// The pool of a switch.
    pub fn pool(&self, switch: u32) -> Pool {
        self.pools[switch as usize]
    }
}

/// The memory of a switch that the pool gets, if that is least there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TightestSwitch {
    /// Wire bytes of the pool.
    pub pool: u64,
    /// Wire bytes that its inputs have to themselves.
    pub aside: u64,
}

/// The switch with the smallest pool, and an input whose headroom is below the safe one, with that
/// number. Rates of links change as given.
pub fn tightest(
    wiring: &Wiring,
    config: SharedConfig,
    changes: impl IntoIterator<Item = (u32, SimTime, Rate)>,
) -> (TightestSwitch, Option<(PortId, u64)>) {
    let mut shared = SharedSwitches::of(wiring, config);
    changes.into_iter().for_each(|change| note_rate(&mut shared.rates, change));
    shared.size(wiring.ports(), 0..wiring.ports().len() as u32);
    let pool = shared.pools.iter().map(|pool| pool.size).min().unwrap_or(0);
    let aside = shared.aside(config).into_iter().max().unwrap_or(0);
    let inputs = (0..).zip(&shared.inputs).filter(|(_, input)| input.switch != NONE);
    let late = inputs.filter_map(|(link, input)| {
        let (way, back) = link_pair(wiring.ports(), (&shared.back, &shared.rates), link)?;
        let safe = config.safe_headroom(way, back);
        (input.headroom < safe).then_some((PortId(link), safe))
    });
    let late = late.max_by_key(|(link, safe)| (*safe, std::cmp::Reverse(link.0)));
    (TightestSwitch { pool, aside }, late)
}

/// What the report of pauses asks.
impl SharedSwitches {
    /// The ports of the switch at the end of a link.
    pub fn outputs_behind(&self, link: u32) -> &[u32] {
        let switch = self.inputs[link as usize].switch;
        self.outputs_of.get(switch as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether a level of a link would stay paused if its switch held only `left`, bytes by link
    /// and level.
    pub fn would_stay(&self, (link, level): (u32, u8), left: &[((u32, u8), u32)]) -> bool {
        let Some(config) = self.config else { return false };
        let rest = |(link, level): (u32, u8), left: u32| {
            let mut memory = self.inputs[link as usize].levels[usize::from(level & 7)];
            let gone = (memory.held + memory.headroom).saturating_sub(left);
            memory.release(gone, config.reserve);
            memory
        };
        let pooled = left.iter().map(|(of, left)| rest(*of, *left).pooled(config.reserve));
        let used = pooled.map(u64::from).sum();
        let own = left.iter().find(|(of, _)| *of == (link, level));
        let Some((_, own)) = own else { return false };
        let input = &self.inputs[link as usize];
        let pool = Pool { used, ..self.pools[input.switch as usize] };
        let limit = pool.limit(input.alpha);
        !rest((link, level), *own).resumes((config.reserve, config.resume_gap), limit)
    }
}

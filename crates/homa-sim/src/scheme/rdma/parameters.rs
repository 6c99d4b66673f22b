//! Parameters of congestion controls: defaults at the rate of the link, limits, and what a plan
//! with all of them says.

use homa_proto::Duration;
use homa_workload::rng::Rng;

use crate::draw::Draw;
use crate::scenario::{
    Bandwidth, DcqcnOptions, DcqcnPresetName, DctcpRdmaOptions, HpccOptions, PowerTcpOptions,
    ScenarioError, SchemeOptions, Span, SwiftOptions, TimelyOptions,
};
use crate::transport::rdma::{
    ControlConfig, DcqcnConfig, DctcpRateConfig, HpccConfig, PowerConfig, SwiftConfig, TimelyConfig,
};

use super::{RdmaAlgorithm, RdmaSizes, between, nanos, rate, share};

/// The rate at which switches count in units of 128 and 80 bytes.
const UNIT_RATE: u64 = 25_000_000_000;

/// The parameters, and the unit in which switches count.
pub(super) fn control(
    sizes: &RdmaSizes,
    options: &SchemeOptions,
) -> Result<(ControlConfig, u32), ScenarioError> {
    let power = options.powertcp.unwrap_or_default();
    match sizes.algorithm {
        RdmaAlgorithm::Hpcc => return hpcc(sizes, options.hpcc.unwrap_or_default()),
        RdmaAlgorithm::Dcqcn => dcqcn(sizes, options.dcqcn.unwrap_or_default()),
        RdmaAlgorithm::Timely => timely(sizes, options.timely.unwrap_or_default()),
        RdmaAlgorithm::Dctcp => dctcp(sizes, options.dctcp_rdma.unwrap_or_default()),
        RdmaAlgorithm::Power => {
            let unit = int_unit("options.powertcp.int_unit", power.int_unit, sizes)?;
            return Ok((ControlConfig::PowerTcp(powertcp(sizes, power, (0.95, 0.9))?), unit));
        }
        RdmaAlgorithm::ThetaPower => {
            if power.int_unit.is_some() {
                let why = "hosts of `theta-powertcp` need no telemetry: leave it out";
                return Err(ScenarioError::unfit("options.powertcp.int_unit", why));
            }
            powertcp(sizes, power, (1.05, 0.7)).map(ControlConfig::ThetaPowerTcp)
        }
        RdmaAlgorithm::Swift => swift(sizes, options.swift.unwrap_or_default()),
    }
    .map(|parameters| (parameters, 1))
}

/// `options` with the table of this congestion control written out.
pub(super) fn resolved(
    control: &ControlConfig,
    int_unit: u32,
    mut options: SchemeOptions,
) -> SchemeOptions {
    match *control {
        ControlConfig::Hpcc(config) => {
            options.hpcc = Some(HpccOptions {
                target: Some(config.target),
                stages: Some(config.stages),
                additive: Some(Bandwidth(config.additive)),
                int_unit: Some(int_unit),
            });
        }
        ControlConfig::Dcqcn(config) => {
            options.dcqcn = Some(DcqcnOptions {
                preset: options.dcqcn.and_then(|given| given.preset),
                alpha_every: Some(Span::nanos(config.alpha_every)),
                cut_every: Some(Span::nanos(config.cut_every)),
                rise_every: Some(Span::nanos(config.rise_every)),
                gain: Some(config.gain),
                recoveries: Some(config.recoveries),
                additive: Some(Bandwidth(config.additive)),
                hyper: Some(Bandwidth(config.hyper)),
            });
        }
        ControlConfig::Timely(config) => {
            options.timely = Some(TimelyOptions {
                alpha: Some(config.alpha),
                beta: Some(config.beta),
                low: Some(Span::nanos(config.low)),
                high: Some(Span::nanos(config.high)),
                least_rtt: Some(Span::nanos(config.least_rtt)),
                additive: Some(Bandwidth(config.additive)),
                hyper: Some(Bandwidth(config.hyper)),
            });
        }
        ControlConfig::DctcpRate(config) => {
            options.dctcp_rdma = Some(DctcpRdmaOptions {
                gain: Some(config.gain),
                additive: Some(Bandwidth(config.additive)),
            });
        }
        ControlConfig::PowerTcp(config) | ControlConfig::ThetaPowerTcp(config) => {
            let has_unit = matches!(control, ControlConfig::PowerTcp(_));
            options.powertcp = Some(PowerTcpOptions {
                target: Some(config.target),
                gain: Some(config.gain),
                additive: Some(Bandwidth(config.additive)),
                int_unit: has_unit.then_some(int_unit),
            });
        }
        ControlConfig::Swift(config) => {
            options.swift = Some(SwiftOptions {
                base: Some(Span::nanos(config.base)),
                per_switch: Some(Span::nanos(config.per_switch)),
                range: Some(Span::nanos(config.range)),
                scaled_from: Some(config.scaled_from),
                scaled_to: Some(config.scaled_to),
                additive: Some(config.additive),
                beta: Some(config.beta),
                largest_cut: Some(config.largest_cut),
                initial_window: Some(config.initial),
                min_window: Some(config.limits.0),
                max_window: Some(config.limits.1),
            });
        }
    }
    options
}

/// The unit in which switches count.
fn int_unit(
    field: &'static str,
    given: Option<u32>,
    sizes: &RdmaSizes,
) -> Result<u32, ScenarioError> {
    let unit = u32::try_from(sizes.scale.link.0 / UNIT_RATE).unwrap_or(u32::MAX).max(1);
    between(field, given.unwrap_or(unit), 1, 1_000)
}

fn hpcc(sizes: &RdmaSizes, given: HpccOptions) -> Result<(ControlConfig, u32), ScenarioError> {
    let link = sizes.scale.link.0;
    let unit = int_unit("options.hpcc.int_unit", given.int_unit, sizes)?;
    let config = HpccConfig {
        target: share("options.hpcc.target", given.target.unwrap_or(0.95), (0.1, 1.5))?,
        stages: between("options.hpcc.stages", given.stages.unwrap_or(0), 0, 1_000)?,
        additive: rate("options.hpcc.additive", given.additive, link / 2_500)?,
        base_rtt: sizes.base_rtt,
        window: sizes.bdp(),
    };
    Ok((ControlConfig::Hpcc(config), unit))
}

fn dcqcn(sizes: &RdmaSizes, given: DcqcnOptions) -> Result<ControlConfig, ScenarioError> {
    let link = sizes.scale.link.0;
    let default = match given.preset.unwrap_or(DcqcnPresetName::Hpcc) {
        DcqcnPresetName::Hpcc => DcqcnConfig {
            alpha_every: 1_000,
            cut_every: 4_000,
            rise_every: 300_000,
            gain: 1.0 / 256.0,
            recoveries: 1,
            additive: link / 5_000,
            hyper: link / 500,
        },
        DcqcnPresetName::Sigcomm15 => DcqcnConfig {
            alpha_every: 50_000,
            cut_every: 50_000,
            rise_every: 55_000,
            gain: 1.0 / 256.0,
            recoveries: 5,
            additive: 40_000_000,
            hyper: 400_000_000,
        },
    };
    let time = |field, given, default| nanos(field, given, Duration(default));
    Ok(ControlConfig::Dcqcn(DcqcnConfig {
        alpha_every: time("options.dcqcn.alpha_every", given.alpha_every, default.alpha_every)?,
        cut_every: time("options.dcqcn.cut_every", given.cut_every, default.cut_every)?,
        rise_every: time("options.dcqcn.rise_every", given.rise_every, default.rise_every)?,
        gain: share("options.dcqcn.gain", given.gain.unwrap_or(default.gain), (0.0, 1.0))?,
        recoveries: between(
            "options.dcqcn.recoveries",
            given.recoveries.unwrap_or(default.recoveries),
            0,
            1_000,
        )?,
        additive: rate("options.dcqcn.additive", given.additive, default.additive)?,
        hyper: rate("options.dcqcn.hyper", given.hyper, default.hyper)?,
    }))
}

fn timely(sizes: &RdmaSizes, given: TimelyOptions) -> Result<ControlConfig, ScenarioError> {
    let link = sizes.scale.link.0;
    let time = |field, given, micros| nanos(field, given, Duration::micros(micros));
    Ok(ControlConfig::Timely(TimelyConfig {
        alpha: share("options.timely.alpha", given.alpha.unwrap_or(0.875), (0.0, 1.0))?,
        beta: share("options.timely.beta", given.beta.unwrap_or(0.8), (0.0, 1.0))?,
        low: time("options.timely.low", given.low, 50)?,
        high: time("options.timely.high", given.high, 500)?,
        least_rtt: time("options.timely.least_rtt", given.least_rtt, 20)?,
        additive: rate("options.timely.additive", given.additive, link / 1_000)?,
        hyper: rate("options.timely.hyper", given.hyper, link / 200)?,
    }))
}

fn dctcp(sizes: &RdmaSizes, given: DctcpRdmaOptions) -> Result<ControlConfig, ScenarioError> {
    // A packet per round trip: 615 Mbit/s for 1000 bytes and 13 us.
    let payload = sizes.wire.payload;
    let additive = u64::from(payload) * 8_000_000_000 / sizes.base_rtt.max(1);
    Ok(ControlConfig::DctcpRate(DctcpRateConfig {
        gain: share("options.dctcp_rdma.gain", given.gain.unwrap_or(1.0 / 16.0), (0.0, 1.0))?,
        additive: rate("options.dctcp_rdma.additive", given.additive, additive)?,
        payload,
    }))
}

/// Defaults are those of PowerTCP's simulator (`rdma-hw.cc`), the increment at 25 Gbit/s.
fn powertcp(
    sizes: &RdmaSizes,
    given: PowerTcpOptions,
    (target, gain): (f64, f64),
) -> Result<PowerConfig, ScenarioError> {
    let additive = sizes.scale.link.0 / 500 * 3;
    Ok(PowerConfig {
        target: share("options.powertcp.target", given.target.unwrap_or(target), (0.1, 10.0))?,
        gain: share("options.powertcp.gain", given.gain.unwrap_or(gain), (0.0, 1.0))?,
        additive: rate("options.powertcp.additive", given.additive, additive)?,
        base_rtt: sizes.base_rtt,
    })
}

/// Times and windows by default are those of Google's simulator of Bolt, `CC_SWIFT`.
fn swift(sizes: &RdmaSizes, given: SwiftOptions) -> Result<ControlConfig, ScenarioError> {
    let payload = sizes.wire.payload;
    let product = sizes.bdp() as f64 / f64::from(payload);
    let time = |field, given, micros| nanos(field, given, Duration::micros(micros));
    let addition = |field, given: Option<Span>, micros| match given {
        Some(Span(0)) => Ok(0),
        _ => nanos(field, given, Duration::micros(micros)),
    };
    let packets =
        |field, given: Option<f64>, default| share(field, given.unwrap_or(default), (1e-4, 1e6));
    let scaled_from = packets("options.swift.scaled_from", given.scaled_from, 0.1)?;
    let scaled_to = packets("options.swift.scaled_to", given.scaled_to, 256.0)?;
    if scaled_to <= scaled_from {
        let must = "be more than `options.swift.scaled_from`";
        return Err(ScenarioError::field("options.swift.scaled_to", must));
    }
    let of = |bytes: f64| bytes / f64::from(payload);
    let most = of(373_760.0).max(product).min(1e6);
    let least = packets("options.swift.min_window", given.min_window, of(15.0).max(1e-4))?;
    let most = packets("options.swift.max_window", given.max_window, most.max(least))?;
    if least > most {
        let must = format!("be at least `options.swift.min_window`, {least}");
        return Err(ScenarioError::field("options.swift.max_window", must));
    }
    let initial = product.max(1.0).clamp(least, most);
    let initial = packets("options.swift.initial_window", given.initial_window, initial)?;
    if !(least..=most).contains(&initial) {
        let must = format!("be {least} to {most}, the least and the largest window");
        return Err(ScenarioError::field("options.swift.initial_window", must));
    }
    Ok(ControlConfig::Swift(SwiftConfig {
        base: time("options.swift.base", given.base, 25)?,
        per_switch: addition("options.swift.per_switch", given.per_switch, 1)?,
        range: addition("options.swift.range", given.range, 100)?,
        scaled_from,
        scaled_to,
        additive: share("options.swift.additive", given.additive.unwrap_or(1.0), (0.0, 1e3))?,
        beta: share("options.swift.beta", given.beta.unwrap_or(0.8), (0.0, 1.0))?,
        largest_cut: share(
            "options.swift.largest_cut",
            given.largest_cut.unwrap_or(0.5),
            (0.0, 1.0),
        )?,
        initial,
        limits: (least, most),
        packet: (payload, sizes.wire.data(payload)),
    }))
}

/// Sets some parameters at random, for scenarios of the swarm.
pub(super) fn draw(algorithm: RdmaAlgorithm, rng: &mut Rng, options: &mut SchemeOptions) {
    match algorithm {
        RdmaAlgorithm::Hpcc => {
            options.hpcc = Some(HpccOptions {
                target: rng.maybe(&[0.5, 0.99]),
                stages: rng.maybe(&[1, 5]),
                int_unit: rng.maybe(&[1, 100]),
                ..HpccOptions::default()
            });
        }
        RdmaAlgorithm::Dcqcn => {
            options.dcqcn = Some(DcqcnOptions {
                preset: rng.maybe(&[DcqcnPresetName::Hpcc, DcqcnPresetName::Sigcomm15]),
                cut_every: rng.maybe(&[Span::nanos(1), Span::millis(1)]),
                gain: rng.maybe(&[0.0, 0.5]),
                recoveries: rng.maybe(&[0, 5]),
                ..DcqcnOptions::default()
            });
        }
        RdmaAlgorithm::Timely => {
            options.timely = Some(TimelyOptions {
                beta: rng.maybe(&[0.1, 1.0]),
                low: rng.maybe(&[Span::nanos(1), Span::millis(1)]),
                ..TimelyOptions::default()
            });
        }
        RdmaAlgorithm::Dctcp => {
            options.dctcp_rdma =
                Some(DctcpRdmaOptions { gain: rng.maybe(&[0.0, 1.0]), ..Default::default() });
        }
        RdmaAlgorithm::Power | RdmaAlgorithm::ThetaPower => {
            options.powertcp = Some(PowerTcpOptions {
                target: rng.maybe(&[0.5, 2.0]),
                gain: rng.maybe(&[0.0, 1.0]),
                ..PowerTcpOptions::default()
            });
        }
        RdmaAlgorithm::Swift => {
            options.swift = Some(SwiftOptions {
                base: rng.maybe(&[Span::nanos(1), Span::millis(1)]),
                beta: rng.maybe(&[0.0, 1.0]),
                largest_cut: rng.maybe(&[0.1, 1.0]),
                max_window: rng.maybe(&[2_000.0, 1e5]),
                ..SwiftOptions::default()
            });
        }
    }
}

//! The options of schemes, all of them set.

use homa_sim::scenario::{
    AlgorithmName, Bandwidth, CpuOptions, DcpimOptions, DcqcnOptions, DcqcnPresetName,
    DctcpRdmaOptions, EcnConfig, FramingName, HpccOptions, InterruptsName, NdpOptions, NicOptions,
    PFabricOptions, PHostFirst, PHostOptions, PacerOptions, PhantomOptions, PhantomOrderName,
    PhantomPlaceName, PickName, PowerTcpOptions, QueueBytes, RdmaOptions, SchemeOptions,
    SirdFirstName, SirdOptions, SirdOrderName, Span, SwiftOptions, SwitchKind, SwitchOptions,
    TcpOptions, TimelyOptions, UetOptions, UetPathsName,
};

fn phantom() -> PhantomOptions {
    PhantomOptions {
        enabled: Some(true),
        drain: Some(0.9),
        threshold: Some(1.into()),
        order: Some(PhantomOrderName::CompareThenAdd),
        place: Some(PhantomPlaceName::Series),
        tick: Some(Span(1)),
        uncounted: Some(1),
    }
}

fn pacer() -> PacerOptions {
    PacerOptions {
        enabled: Some(true),
        period: Some(Span(1)),
        gain: Some(0.5),
        beta: Some(1.0),
        probability: Some(0.5),
        expiry: Some(Span(1)),
        depth: Some(64),
        tick: Some(Span(1)),
    }
}

fn nic() -> NicOptions {
    NicOptions {
        large_send: Some(65_536),
        send_queue: Some(100_000),
        rx_frames: Some(1),
        rx_delay: Some(Span(1)),
        interrupt_gap: Some(Span(1)),
        interrupts: Some(InterruptsName::E1000e),
        merge: Some(1),
        cpu: Some(CpuOptions {
            interrupt: Some(Span(1)),
            frame: Some(Span(1)),
            delivery: Some(Span(1)),
            send: Some(Span(1)),
        }),
    }
}

fn switch() -> SwitchOptions {
    SwitchOptions {
        kind: Some(SwitchKind::Lossless),
        speedup: Some(1),
        lookup: Some(Span(1)),
        virtual_outputs: Some(true),
        output_drops: Some(true),
        priorities: Some(1),
        pause: Some(1),
        unpause: Some(1),
        response: Some(Span(1)),
        memory: Some(1),
        alpha: Some(1.0),
        reserve: Some(1),
        resume_gap: Some(1),
        headroom: Some(1),
    }
}

fn tcp() -> TcpOptions {
    TcpOptions {
        mtu: Some(1500),
        initial_rto: Some(Span(1)),
        min_rto: Some(Span(1)),
        max_rto: Some(Span(1)),
        rto_granularity: Some(Span(1)),
        window: Some(65_536),
        delayed_ack: Some(Span(1)),
        initial_window: Some(1),
        connections: Some(1),
        pick: Some(PickName::Idle),
        handshake: Some(true),
        algorithm: Some(AlgorithmName::Cubic),
        ecn: Some(true),
        idle_restart: Some(true),
        fast_retransmit: Some(true),
        sack: Some(true),
        rack: Some(true),
        timestamps: Some(true),
        size_classes: Some(vec![1]),
        source_ecn: Some(1),
        demotion: Some(vec![1]),
        max_timeouts: Some(15),
        tso_win_divisor: Some(3),
    }
}

pub fn options() -> SchemeOptions {
    SchemeOptions {
        framing: Some(FramingName::Paper),
        mtu: Some(1500),
        rtt_bytes: Some(1),
        unscheduled_bytes: Some(1),
        levels: Some(1),
        network_levels: Some(1),
        scheduled_levels: Some(1),
        overcommitment: Some(1),
        cutoffs: Some(vec![1]),
        cutoff_weight: Some(1.0),
        tail_boost: Some(true),
        incast_control: Some(true),
        resend_after: Some(Span(1)),
        ecn: Some(EcnConfig::new(1.into())),
        phantom: Some(phantom()),
        pacer: Some(pacer()),
        nic: Some(nic()),
        pfabric: Some(PFabricOptions {
            mtu: Some(1500),
            bare: Some(true),
            initial_window: Some(1),
            max_window: Some(1),
            queue_packets: Some(1),
            timeout: Some(Span(1)),
            probe_after: Some(1),
        }),
        phost: Some(PHostOptions {
            mtu: Some(1500),
            bare: Some(true),
            free_tokens: Some(1),
            free_for_long: Some(true),
            window: Some(1),
            downgrade: Some(1.0),
            expiry: Some(1.0),
            resend: Some(1.0),
            first: Some(PHostFirst::Blind),
            token_slots: Some(true),
            queue_packets: Some(1),
        }),
        ndp: Some(NdpOptions {
            mtu: Some(1500),
            initial_window: Some(1),
            queue_packets: Some(1),
            timeout: Some(Span(1)),
            avoid_bad_paths: Some(true),
            again_first: Some(true),
        }),
        sird: Some(sird()),
        dcpim: Some(dcpim()),
        uet: Some(uet()),
        rdma: Some(rdma()),
        hpcc: Some(HpccOptions {
            target: Some(1.0),
            stages: Some(1),
            additive: Some(Bandwidth(1)),
            int_unit: Some(1),
        }),
        dcqcn: Some(dcqcn()),
        timely: Some(timely()),
        dctcp_rdma: Some(DctcpRdmaOptions { gain: Some(1.0), additive: Some(Bandwidth(1)) }),
        powertcp: Some(powertcp()),
        swift: Some(swift()),
        switch: Some(switch()),
        tcp: Some(tcp()),
    }
}

fn sird() -> SirdOptions {
    SirdOptions {
        mtu: Some(1500),
        bdp: Some(1),
        credit: Some(1.0),
        sender_credit: Some(1.0),
        csn_threshold: Some(1.0),
        unsolicited: Some(1.0),
        gain: Some(1.0),
        host_floor: Some(1.0),
        network_floor: Some(1.0),
        order: Some(SirdOrderName::Srpt),
        shortest_share: Some(1.0),
        first: Some(SirdFirstName::Control),
        resend: Some(Span(1)),
    }
}

fn uet() -> UetOptions {
    UetOptions {
        mtu: Some(4150),
        base_rtt: Some(Span(1)),
        queue_packets: Some(1),
        mark_from: Some(1),
        mark_all: Some(1),
        target: Some(Span(1)),
        initial_window: Some(1),
        max_window: Some(1.0),
        paths: Some(UetPathsName::Mixed),
        entropies: Some(1),
        ack_every: Some(1),
        timeout: Some(Span(1)),
    }
}

fn rdma() -> RdmaOptions {
    RdmaOptions {
        payload: Some(1000),
        base_rtt: Some(Span(1)),
        window: Some(true),
        min_rate: Some(Bandwidth(1)),
        timeout: Some(Span(1)),
        nack_every: Some(Span(1)),
        acks_first: Some(true),
        mark_from: Some(QueueBytes::Fixed(1)),
        mark_all: Some(QueueBytes::Fixed(1)),
        mark_most: Some(1.0),
    }
}

fn dcqcn() -> DcqcnOptions {
    DcqcnOptions {
        preset: Some(DcqcnPresetName::Hpcc),
        alpha_every: Some(Span(1)),
        cut_every: Some(Span(1)),
        rise_every: Some(Span(1)),
        gain: Some(1.0),
        recoveries: Some(1),
        additive: Some(Bandwidth(1)),
        hyper: Some(Bandwidth(1)),
    }
}

fn timely() -> TimelyOptions {
    TimelyOptions {
        alpha: Some(1.0),
        beta: Some(1.0),
        low: Some(Span(1)),
        high: Some(Span(1)),
        least_rtt: Some(Span(1)),
        additive: Some(Bandwidth(1)),
        hyper: Some(Bandwidth(1)),
    }
}

fn powertcp() -> PowerTcpOptions {
    PowerTcpOptions {
        target: Some(1.0),
        gain: Some(1.0),
        additive: Some(Bandwidth(1)),
        int_unit: Some(1),
    }
}

fn swift() -> SwiftOptions {
    SwiftOptions {
        base: Some(Span(1)),
        per_switch: Some(Span(1)),
        range: Some(Span(1)),
        scaled_from: Some(1.0),
        scaled_to: Some(1.0),
        additive: Some(1.0),
        beta: Some(1.0),
        largest_cut: Some(1.0),
        initial_window: Some(1.0),
        min_window: Some(1.0),
        max_window: Some(1.0),
    }
}

fn dcpim() -> DcpimOptions {
    DcpimOptions {
        mtu: Some(1500),
        bare: Some(true),
        bdp: Some(1),
        short: Some(1),
        rounds: Some(1),
        channels: Some(1),
        control_rtt: Some(Span(1)),
        slack: Some(1.0),
        sorted_rounds: Some(1),
        window: Some(1),
        window_timeout: Some(1.0),
        resend: Some(1.0),
        notify: Some(Span(1)),
    }
}

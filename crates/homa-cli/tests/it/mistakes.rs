//! Errors name the option or file, the allowed values, and the next step.

#[allow(dead_code)]
use crate::common::{code, homa, stderr};
use crate::folder::Folder;

#[test]
fn a_mistake_is_said_of_the_option_that_has_it() {
    let of_file = "error: --set traffic: /nonexistent.csv: No such file";
    for (arguments, said) in [
        (&["--scheme", "hom"][..], "error: --scheme: unknown scheme `hom`; did you mean `homa`?\n"),
        (&["--scheme", "bolt"], "error: --scheme: unknown scheme `bolt`; allowed: homa-sim, "),
        (&["--workload", "w9"], "error: --workload: unknown workload `w9`; allowed: w1 to w5, "),
        (
            &["--workload", "websearch"],
            "error: --workload: unknown workload `websearch`; did you mean `web-search`?\n",
        ),
        (&["--messages", "0"], "error: --messages: must be at least 1\n"),
        (&["--flows", "/nonexistent.csv"], "error: --flows: /nonexistent.csv: No such file"),
        (&["--set", "traffic={pattern=\"flows\",file=\"/nonexistent.csv\"}"], of_file),
        (&["--scheme", "homa", "--set", "scheme=hom"], "error: --set scheme: "),
        (
            &["--scheme", "dctcp", "--set", "options.incast_control=true"],
            "error: --set options.incast_control: only Homa schemes have incast control; `dctcp` \
             does not: leave it out, or choose `homa`\n",
        ),
        (
            &["--set", "options.incast_contrl=true"],
            "error: --set options.incast_contrl: unknown key `incast_contrl`; did you mean \
             `incast_control`?\n",
        ),
        (
            &["--set", "load.basis=papers"],
            "error: --set load.basis: unknown value `papers`; did you mean `paper`?\n",
        ),
        (
            &["--set", "fabric.host_link=25"],
            "error: --set fabric.host_link: `25` has no unit: write 25Gbps or 25Mbps\n",
        ),
        (
            &["--set", "fabric.buffer={kind=\"per-port\",bytes=\"128kb\"}"],
            "`128kb` is not a number of bytes: write it like 1500, 1KB, 128KiB or 2MB\n",
        ),
        (
            &[
                "--set",
                "fabric.shape={kind=\"single-switch\",hosts=4}",
                "--set",
                "beside={scheme=\"tcp\",options={levels=4}}",
            ],
            "error: --set beside: `beside.options.levels`: only Homa schemes have priority levels",
        ),
        (&["--load", "-0.5"], "'-0.5' for '--load <LOAD>': a load must be a share"),
        (&["--seed", "-1"], "'-1' for '--seed <S>': a seed is a number from 0"),
        (&["--messages", "1e6"], "'1e6' for '--messages <N>': is not a whole number: write it"),
        (&["--set", "fabric.shape=\"ring\""], "expected a table of keys and values"),
        (&["--set", "measures.queues=7"], "expected true or false"),
    ] {
        let output = homa(&[&["sim"][..], arguments].concat());
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_slip_in_a_name_is_told_the_name_that_was_meant() {
    for (arguments, said) in [
        (
            &["repro", "homa-fg10"][..],
            "error: unknown figure `homa-fg10`; did you mean `homa-fig10`?\n",
        ),
        (&["repro", "quic"], "error: unknown figure `quic`; allowed: "),
        (
            &["bench", "--transport", "tcp-pol"],
            "'tcp-pol' for '--transport <NAME,…>': unknown transport `tcp-pol`; did you mean \
             `tcp-pool`?\n",
        ),
        (&["bench", "--transport", "quic"], "unknown transport `quic`; allowed: homa, "),
        (&["bench", "--workload", "datamining"], "did you mean `data-mining`?\n"),
        (&["call", "[::1]:9", "--size", "imc1O"], "did you mean `imc10`?\n"),
        (&["pias-thresholds", "websearch"], "did you mean `web-search`?\n"),
        (&["workloads", "websearch"], "did you mean `web-search`?\n"),
    ] {
        let output = homa(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_number_out_of_range_is_told_the_range() {
    for (arguments, said) in [
        (
            &["call", "127.0.0.1:0"][..],
            "'127.0.0.1:0' for '<ADDR>': no server has port 0: give the",
        ),
        (&["ping", "localhost:0"], "no server has port 0: "),
        (&["bench", "--peer", "127.0.0.1:0"], "no server has port 0: "),
        (&["swarm", "--seed", "18446744073709551616"], "a seed is a whole number from 0 to 18446"),
        (&["tail", "--seed", "-1"], "a seed is a whole number from 0 to 18446744073709551615"),
        (&["sim", "--set", "seed=18446744073709551615"], "whole numbers end at 922337203685477580"),
    ] {
        let output = homa(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_folder_or_plan_of_another_kind_is_told_what_belongs_there() {
    let folder = Folder::new("another-kind");
    let plan = folder.file("sweep.toml", "title = \"Of homa sweep\"\n[scenario]\n");
    let nowhere = folder.path("none");
    for (arguments, said) in [
        (["report", &nowhere], "hint: give a folder that `homa sim --out`, `homa sweep` or"),
        (["repro", &plan], "`homa sweep` runs a plan with axes"),
    ] {
        let output = homa(&arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
    }
}

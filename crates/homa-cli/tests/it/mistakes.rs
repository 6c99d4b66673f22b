//! What is said of mistakes: of which option or file, what is allowed, and what to do next.

#[allow(dead_code)]
use crate::common::{code, homa, stderr};
use crate::folder::Folder;

#[test]
fn a_mistake_is_said_of_the_option_that_has_it() {
    let of_file = "--set: `traffic`: /nonexistent.csv: No such file";
    for (arguments, said) in [
        (&["--scheme", "hom"][..], "error: --scheme: `scheme`: unknown scheme `hom`"),
        (&["--workload", "w9"], "error: --workload: `traffic.workload`: "),
        (&["--messages", "0"], "error: --messages: `stop.messages`: "),
        (&["--flows", "/nonexistent.csv"], "error: --flows: `traffic.file`: "),
        (&["--set", "traffic={pattern=\"flows\",file=\"/nonexistent.csv\"}"], of_file),
        (&["--scheme", "homa", "--set", "scheme=hom"], "error: --set: `scheme`: "),
        (
            &["--scheme", "dctcp", "--set", "options.levels=4"],
            "error: --set: `options.levels`: `options.levels` must stay out: it is an option of \
             Homa's",
        ),
        (&["--load", "-0.5"], "'-0.5' for '--load <LOAD>': load is a share"),
        (&["--seed", "-1"], "'-1' for '--seed <S>': a seed is a number from 0"),
        (&["--messages", "1e6"], "'1e6' for '--messages <N>': write a whole number, such as"),
        (&["--set", "fabric.shape=\"ring\""], "expected a table of keys and values"),
        (&["--set", "measures.queues=7"], "expected true or false"),
    ] {
        let output = homa(&[&["sim"][..], arguments].concat());
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

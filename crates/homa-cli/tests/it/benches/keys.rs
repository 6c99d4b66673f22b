//! `docs/json.md` has every key that a bench prints, and no key that none prints, as `json.rs`
//! checks for the other commands. `racks` checks those of a rack.

use super::alone;
use super::runs::{MICRO, shown};
use crate::common::{code, document, homa, stderr};
use crate::json::check;

#[test]
fn the_keys_of_the_micro_benchmark_are_in_the_reference() {
    let _alone = alone();
    if let Some(micro) = shown(&MICRO) {
        check("### --micro", &[micro]);
    }
}

#[test]
fn the_grpc_bench_has_its_keys_or_asks_for_its_feature() {
    let _alone = alone();
    let output = homa(&["bench", "--grpc", "--duration", "250ms", "--format", "json"]);
    if cfg!(feature = "grpc") {
        if code(&output) == 2 && stderr(&output).contains("the machine is too busy") {
            return skip::test("a machine on which a search takes less than 100 ms");
        }
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        check("### --grpc", &[document(&output)]);
    } else {
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains("--features grpc"), "{}", stderr(&output));
    }
}

//! Tables as researchers read them: pandas gets the same columns, types and rows from CSV and
//! Parquet. Skipped if Python has no pandas or no reader of Parquet; `HOMA_PYTHON` names another
//! Python than `python3`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use homa_lab::document::Document;
use homa_lab::plan::Plan;
use homa_lab::store::Store;
use homa_lab::sweep::{Options, run_plan};

const PLAN: &str = r#"
[scenario.fabric]
shape = { kind = "single-switch", hosts = 4 }
[axes]
"load.fraction" = [0.3, 0.5]
"fabric.host_link" = ["10Gbps", "25Gbps"]
"stop.messages" = [60]
"#;

/// Dtypes of measures alone: whole numbers with gaps are floats to pandas' CSV reader.
const COMPARE: &str = r#"
import sys, pandas
csv, parquet = pandas.read_csv(sys.argv[1]), pandas.read_parquet(sys.argv[2])
text = [name for name in parquet if not pandas.api.types.is_numeric_dtype(parquet[name])]
for frame in (csv, parquet):
    frame[text] = frame[text].fillna("").astype(str)
for name in parquet.select_dtypes("float"):
    assert csv[name].dtype == parquet[name].dtype, name
pandas.testing.assert_frame_equal(csv, parquet, check_dtype=False, check_exact=True)
for frame in (csv, parquet):
    rows = len(frame)
    assert len(frame[frame["load.fraction"] == 0.3]) == rows / 2, frame["load.fraction"]
    assert len(frame[frame["fabric.host_link_gbps"] > 10]) == rows / 2, frame.columns
    assert len(frame[frame["stop.messages"] == 60]) == rows, frame.columns
print("equal:", len(csv))
"#;

/// Python with pandas and pyarrow, if there is one.
fn python() -> Option<OsString> {
    let python = std::env::var_os("HOMA_PYTHON").unwrap_or_else(|| "python3".into());
    let tried = Command::new(&python).args(["-c", "import pandas, pyarrow"]).output();
    if tried.is_ok_and(|tried| tried.status.success()) {
        return Some(python);
    }
    skip::test("Python with pandas and pyarrow (pip install pandas pyarrow; HOMA_PYTHON names it)");
    None
}

#[test]
fn pandas_reads_the_same_numbers_from_both_files() {
    let Some(python) = python() else { return };
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pandas");
    let _ = std::fs::remove_dir_all(&folder);
    let plan = Plan::parse(&Document::new("pandas.toml", PLAN), &[]).unwrap();
    let options = Options { program: "test".into(), ..Options::on(1) };
    assert!(run_plan(&plan, &Store::create(&folder).unwrap(), &options, &mut |_| {}).unwrap());
    for table in ["summary", "slowdown"] {
        let path = |form: &str| folder.join(format!("{table}.{form}"));
        let mut compare = Command::new(&python);
        compare.args(["-c", COMPARE]).args([path("csv"), path("parquet")]);
        let output = compare.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.starts_with("equal: "), "{table}: {said}{wrong}");
    }
}

//! Claims about the built-in workloads, step sampling, truncation and the errors of a table.

use super::*;

fn sizes(name: &str) -> SizeDistribution {
    Workload::parse(name).unwrap().sizes().unwrap()
}

fn near(measured: f64, expected: f64, tolerance: f64) {
    let off = (measured - expected).abs();
    assert!(off <= tolerance, "{measured} is not within {tolerance} of {expected}");
}

/// Name, rows, mean, smallest, largest.
const SHAPES: [(&str, usize, f64, u32, u32); 5] = [
    ("w1", 307, 187.51, 1, 100_000),
    ("w2", 155, 440.79, 2, 3_529_904),
    ("w3", 842, 2927.35, 3, 15_158_197),
    ("w4", 460, 127_796.64, 53, 10_000_000),
    ("w5", 400, 2_515_863.25, 1442, 28_840_000),
];

#[test]
fn built_in_tables_have_the_published_shape() {
    for (name, rows, mean, smallest, largest) in SHAPES {
        let d = sizes(name);
        assert_eq!(d.steps().len(), rows, "{name}");
        near(d.mean_bytes(), mean, 0.01);
        assert_eq!((d.min_bytes(), d.max_bytes()), (smallest, largest), "{name}");
    }
}

#[test]
fn quantiles_are_the_tick_labels_of_the_slowdown_figures() {
    let percents = [10., 20., 30., 40., 50., 60., 70., 80., 90., 95., 99., 99.9, 100.];
    let expected: [(&str, [u32; 13]); 5] = [
        ("w1", [2, 3, 5, 11, 27, 79, 151, 264, 503, 804, 1876, 4924, 100_000]),
        ("w2", [3, 34, 58, 171, 269, 320, 366, 427, 512, 931, 3151, 21_845, 3_529_904]),
        ("w3", [36, 77, 110, 158, 268, 313, 402, 573, 1755, 5521, 31_013, 356_516, 15_158_197]),
        (
            "w4",
            [
                315, 376, 502, 561, 662, 960, 6387, 49_408, 120_373, 273_075, 3_430_822,
                10_000_000, 10_000_000,
            ],
        ),
        (
            "w5",
            [
                5768, 18_746, 27_398, 47_586, 70_658, 191_786, 961_814, 1_922_186, 4_806_186,
                19_227_628, 26_917_814, 28_840_000, 28_840_000,
            ],
        ),
    ];
    for (name, quantiles) in expected {
        let d = sizes(name);
        for (percent, bytes) in percents.into_iter().zip(quantiles) {
            assert_eq!(d.quantile(percent / 100.0), bytes, "{name} at {percent} %");
        }
    }
}

#[test]
fn shares_of_messages_and_bytes_agree_with_figure_1() {
    let messages = [0.9651, 0.9533, 0.8576, 0.6041, 0.0];
    let one_packet = [0.9831, 0.9696, 0.8886, 0.6409, 0.0250];
    let bytes_below_10k = [0.9872, 0.7400, 0.1998, 0.0045, 0.0003];
    let bytes_below_1m = [1.0, 0.9616, 0.7406, 0.2526, 0.0343];
    for (i, workload) in Workload::BUILT_IN.iter().enumerate() {
        let d = workload.sizes().unwrap();
        near(d.share_of_messages(1000), messages[i], 6e-5);
        near(d.share_of_messages(1442), one_packet[i], 6e-5);
        near(d.share_of_bytes(10_000), bytes_below_10k[i], 6e-5);
        near(d.share_of_bytes(1_000_000), bytes_below_1m[i], 6e-5);
    }
}

#[test]
fn a_draw_takes_the_first_row_that_reaches_it() {
    let d = SizeDistribution::from_csv(
        "# ours\nsize_bytes,cumulative_fraction\n10,0.25\n20,0.25\n1000,0.75\n2000,1\n",
    )
    .unwrap();
    for (u, bytes) in [(1e-9, 10), (0.25, 10), (0.2501, 1000), (0.75, 1000), (1.0, 2000)] {
        assert_eq!(d.quantile(u), bytes, "u = {u}");
    }
    let mut rng = Rng::stream(1, "test");
    let mut small = 0;
    for _ in 0..100_000 {
        match d.sample(&mut rng) {
            10 => small += 1,
            1000 | 2000 => {}
            other => panic!("drew {other}, which is impossible"),
        }
    }
    // Five standard deviations of a binomial count.
    assert!((24_315..=25_685).contains(&small), "{small}");
}

#[test]
fn truncation_keeps_the_messages_and_cuts_their_bytes() {
    let d = sizes("w4");
    let cut = d.truncated(1_000_000);
    assert_eq!(cut.max_bytes(), 1_000_000);
    assert_eq!(cut.share_of_messages(999_999), d.share_of_messages(999_999));
    let expected = d.mean_of(|b| f64::from(b.min(1_000_000)));
    near(cut.mean_bytes(), expected, 1e-6);
    // A cap that is a size of the table gives that size one step, not two.
    let at_row = d.truncated(d.steps()[100].bytes);
    assert_eq!(at_row.steps().len(), 101);
    assert_eq!(at_row.quantile(1.0), d.steps()[100].bytes);
    assert_eq!(d.truncated(u32::MAX), d);
    assert_eq!(sizes("1000").truncated(0), SizeDistribution::constant(1).unwrap());
}

#[test]
fn a_workload_is_a_name_a_file_or_a_size() {
    assert_eq!(Workload::parse("W3").unwrap(), Workload::W3);
    assert_eq!(Workload::parse("1000").unwrap(), Workload::Constant(1000));
    for path in ["my.csv", "WebSearch_distribution.txt", "a/w3", "./cdf", "data.2024/CDF.tcl"] {
        let file = Workload::File { path: path.into(), reading: Reading::default() };
        assert_eq!(Workload::parse(path).unwrap(), file);
        assert_eq!(file.to_string(), path);
    }
    for size in ["2000", "2KB", "2_000", "2kB"] {
        assert_eq!(Workload::parse(size).unwrap(), Workload::Constant(2_000), "{size}");
    }
    let mixed = Workload::Mixture(vec![(1_024, 4), (10_000_000, 1)]);
    assert_eq!(Workload::parse("1KiB:4, 10MB:1").unwrap(), mixed);
    let pareto = Workload::Pareto { shape: 1_050, mean: 100_000 };
    assert_eq!(Workload::parse("pareto:1.05:100KB").unwrap(), pareto);
    let slip = Workload::parse("websearch").unwrap_err().to_string();
    assert_eq!(slip, "unknown workload `websearch`; did you mean `web-search`?");
    for bad in ["", "w6", "big", "-5", "1e3", "2kb", "1:2:3", "1000:x"] {
        let error = Workload::parse(bad).unwrap_err();
        assert!(matches!(error, WorkloadError::Unknown(_)), "{bad}: {error}");
        assert!(error.to_string().contains("w1 to w5"), "{error}");
    }
    for bad in ["0", "4294967296", "5GB"] {
        assert!(matches!(Workload::parse(bad), Err(WorkloadError::Size(_))), "{bad}");
    }
    for workload in Workload::BUILT_IN.into_iter().chain(Workload::OTHERS) {
        assert_eq!(Workload::parse(&workload.to_string()).unwrap(), workload);
    }
}

#[test]
fn a_missing_file_and_a_bad_file_are_named() {
    let missing = Workload::parse("no/such.csv").unwrap().sizes().unwrap_err();
    assert!(missing.to_string().contains("no/such.csv"), "{missing}");
    let path = std::env::temp_dir().join(format!("sizes-{}.csv", std::process::id()));
    std::fs::write(&path, "size_bytes,cumulative_fraction\n5,x\n").unwrap();
    let bad = Workload::parse(&path.to_string_lossy()).unwrap().sizes().unwrap_err();
    std::fs::remove_file(&path).unwrap();
    let text = bad.to_string();
    assert!(text.contains(&*path.to_string_lossy()) && text.contains("line 2"), "{text}");
}

#[test]
fn each_bad_line_is_named_with_what_is_expected_there() {
    use TableErrorKind as K;
    let cases: [(&str, usize, K); 21] = [
        ("", 1, K::Empty),
        ("# only a comment\n", 1, K::Empty),
        ("H\n", 2, K::Empty),
        ("H\n10\n", 3, K::Fields),
        ("H\n10,0.5,1\n", 3, K::Fields),
        ("H\n0,1\n", 3, K::Nothing),
        ("H\n-4,1\n", 3, K::Size("-4".into())),
        ("H\n4.5,1\n", 3, K::Size("4.5".into())),
        ("H\n10,NaN\n", 3, K::Share("NaN".into())),
        ("H\n10,1.5\n20,1\n", 3, K::Share("1.5".into())),
        ("H\n10,0.5\n10,1\n", 4, K::SizeOrder(10.0)),
        ("H\n10,0.5\n20,0.4\n30,1", 4, K::ShareOrder),
        ("H\n10,0.5\n\n# more\n20,0.9\n", 6, K::Incomplete(0.9, Some(Shares::Fractions))),
        ("size_bytes,share\n10,1\n", 1, K::Header(vec!["size_bytes".into(), "share".into()])),
        ("size,size,cdf\n10,1,1\n", 1, K::Twice("size".into())),
        ("100\n200\n", 2, K::Fields),
        ("100 x\n200 1\n", 1, K::Share("x".into())),
        ("O 0\n200 1\n", 1, K::Size("O".into())),
        ("1 2 0.5\n2 3 1\n", 2, K::Middle),
        ("0 0\n10 97.5\n", 2, K::Incomplete(97.5, None)),
        ("0 5\n10 100\n", 1, K::Nothing),
    ];
    for (text, line, kind) in cases {
        let full = text.replace("H\n", "# sizes\nsize_bytes,cumulative_fraction\n");
        let error = SizeDistribution::from_csv(&full).unwrap_err();
        assert_eq!(error, TableError { line, kind }, "{full}");
        assert!(error.to_string().starts_with(&format!("line {line}: ")), "{error}");
    }
}

#[test]
fn line_ends_and_blanks_of_other_systems_are_accepted() {
    let quoted = "\"size_bytes\", \"cumulative_fraction\"\n\"100\" , \"0.5\"\n2147483647,1\n";
    let sizes = SizeDistribution::from_csv(quoted).unwrap();
    assert_eq!((sizes.min_bytes(), sizes.max_bytes()), (100, MAX_BYTES));
    let beyond = SizeDistribution::from_csv("size_bytes,cumulative_fraction\n2147483648,1\n");
    assert!(beyond.unwrap_err().to_string().contains("1 to 2147483647"));
    assert!(Workload::parse("2147483648").is_err());
    let d = SizeDistribution::from_csv(
        "size_bytes,cumulative_fraction\r\n 10 , 0.5 \r\n\r\n20,0.9999999\r\n",
    )
    .unwrap();
    assert_eq!(d.quantile(1.0), 20);
    assert_eq!(d.share_of_messages(9), 0.0);
}

#[test]
fn a_list_of_messages_is_a_distribution() {
    let d = SizeDistribution::of_messages([500, 20, 500, 1000]).unwrap();
    let steps: Vec<(u32, f64)> = d.steps().iter().map(|s| (s.bytes, s.cumulative)).collect();
    assert_eq!(steps, [(20, 0.25), (500, 0.75), (1000, 1.0)]);
    assert_eq!(SizeDistribution::of_messages([]), None);
    assert_eq!(SizeDistribution::of_messages([0, 1]), None);
}

#[test]
fn the_distributions_of_ns_2_have_the_means_of_its_scripts() {
    let packets = |name: &str| sizes(name).mean_bytes() / 1460.0;
    near(packets("web-search"), 1138.0, 4.0);
    near(packets("data-mining"), 5117.0, 3.0);
    let web = sizes("web-search");
    near(web.share_of_messages(53 * 1460), 0.53, 1e-12);
    near(web.share_of_messages(3333 * 1460), 0.9, 1e-12);
    assert_eq!(web.quantile(0.15), 6 * 1460);
    assert_eq!(sizes("data-mining").quantile(0.5), 1460);
    assert!(sizes("imc10").max_bytes() <= 2107 * 1460);
    for name in ["web-search", "data-mining", "imc10"] {
        let steps = sizes(name).steps().to_vec();
        assert!(steps.is_sorted_by(|a, b| a.bytes < b.bytes && a.cumulative < b.cumulative));
        assert_eq!(steps.last().map(|step| step.cumulative), Some(1.0), "{name}");
    }
}

/// The mean of lines between points (size, cumulative share), in exact arithmetic.
fn mean_of_lines(points: &[(f64, f64)]) -> f64 {
    points.windows(2).map(|pair| (pair[1].1 - pair[0].1) * (pair[0].0 + pair[1].0) / 2.0).sum()
}

#[test]
fn points_of_other_simulators_are_joined_by_lines() {
    let per_cent = "0 0\n1000 40\n10000 80\n100000 95\n1000000 100\n";
    let tables = [
        per_cent.to_owned(),
        per_cent.replace(' ', "\t"),
        per_cent.replace(' ', ", "),
        format!("\u{feff}# web\r\n{}", per_cent.replace('\n', " # point\r\n")),
        "0 0\n1000 0.4\n10000 .8\n1e5 0.95\n1000000 1.0\n".to_owned(),
        "bytes;cumulative_percent\n0;0\n1000;40\n10000;80\n100000;95\n1000000;100\n".to_owned(),
        "cdf,note,size\n0,a,0\n0.4,b,1000\n0.8,c,10000\n0.95,d,100000\n1,e,1000000\n".to_owned(),
        "0 0%\n1KB 40%\n10000 80 %\n100KB 95%\n1MB 100%\n".replace(" %", "%"),
    ];
    for table in tables {
        let d = SizeDistribution::from_csv(&table).unwrap_or_else(|error| panic!("{table}{error}"));
        near(d.mean_bytes(), 38_150.0, 0.01);
        assert_eq!(d.form().map(|form| form.between), Some(Between::Lines), "{table}");
        near(d.share_of_messages(1_000), 0.4, 2e-4);
        near(d.share_of_messages(55_000), 0.875, 1e-3);
        assert_eq!((d.quantile(1.0), d.min_bytes()), (1_000_000, 1), "{table}");
        assert!(d.steps().is_sorted_by(|a, b| a.bytes < b.bytes && a.cumulative <= b.cumulative));
    }
    let steps = Reading { between: Some(Between::Steps), ..Reading::default() };
    let d = SizeDistribution::from_table(per_cent, steps).unwrap();
    near(d.mean_bytes(), 69_400.0, 1e-6);
    assert_eq!(
        d.form().unwrap().to_string(),
        "5 points, steps, shares in per cent, sizes in bytes"
    );
}

#[test]
fn lines_keep_the_mean_of_narrow_and_wide_stretches() {
    // As of HPCC's generator: sizes a byte apart beside sizes a million apart.
    let points: Vec<(f64, f64)> =
        [(0, 0.0), (3, 6.5), (32, 9.7), (33, 9.9), (1_000, 57.0), (15_158_197, 100.0)]
            .map(|(size, share)| (f64::from(size), share))
            .to_vec();
    let text: String = points.iter().map(|(size, share)| format!("{size} {share}\n")).collect();
    let d = SizeDistribution::from_csv(&text).unwrap();
    let exact = mean_of_lines(&points) / 100.0;
    near(d.mean_bytes() / exact, 1.0, 1e-4);
    // Two points of one size are a size that occurs that often, and so is a first one with a share.
    for jump in ["6 0\n6 0.15\n13 1\n", "6 0.15\n13 1\n"] {
        let d = SizeDistribution::from_csv(jump).unwrap();
        near(d.mean_bytes(), 0.15 * 6.0 + 0.85 * 9.5, 1e-9);
        assert_eq!((d.quantile(0.15), d.min_bytes()), (6, 6));
    }
}

#[test]
fn three_columns_are_packets_as_pfabric_has_them() {
    let text = "1 1 0\n1 1 0.5\n2 1 0.6\n3 1 0.7\n2107 1 1.0\n";
    let d = SizeDistribution::from_csv(text).unwrap();
    let points = [(1.0, 0.5), (2.0, 0.6), (3.0, 0.7), (2107.0, 1.0)];
    let packets = 0.5 + mean_of_lines(&points);
    near(d.mean_bytes() / (1460.0 * packets), 1.0, 1e-6);
    assert!(d.form().unwrap().to_string().ends_with("sizes in packets of 1460 B"));
    assert_eq!(d.max_bytes(), 2107 * 1460);
    let read = |name: &str| Reading::split(name).0;
    let other = SizeDistribution::from_table(text, read("packets=1500:x")).unwrap();
    near(other.mean_bytes() / d.mean_bytes(), 1500.0 / 1460.0, 1e-6);
    let bytes = SizeDistribution::from_table(text, read("bytes:x")).unwrap();
    assert_eq!(bytes.max_bytes(), 2107);
    // Sizes that can only be bytes.
    let huge = SizeDistribution::from_csv("1000 1 0\n30000000 1 1\n").unwrap_err().to_string();
    assert!(huge.contains("bytes:FILE"), "{huge}");
}

#[test]
fn a_first_line_of_one_number_is_a_mean_or_a_count() {
    let rows = "100  0.5\n1456  0.65\n10000  0.75\n100000  0.999\n1000000  1.0\n";
    let counted = SizeDistribution::from_csv(&format!("5\n{rows}")).unwrap();
    assert_eq!(counted.form().unwrap().stated, None);
    let stated = SizeDistribution::from_csv(&format!("27168.4\n{rows}")).unwrap();
    let form = stated.form().unwrap();
    assert_eq!(form.stated, Some(27_168.4));
    // The mean of steps, which lines do not have.
    assert!(!form.agrees(stated.mean_bytes()), "{}", stated.mean_bytes());
    let steps =
        SizeDistribution::from_table(&format!("27168.4\n{rows}"), Reading::split("steps:").0);
    let steps = steps.unwrap();
    assert!(form.agrees(steps.mean_bytes()), "{}", steps.mean_bytes());
}

#[test]
fn what_a_table_leaves_open_is_decided_by_words_before_its_path() {
    for text in ["steps:a.csv", "linear:percent:./cdf", "fraction:packets:x", "packets=9000:x"] {
        let workload = Workload::parse(text).unwrap();
        assert_eq!(workload.to_string(), text);
        let Workload::File { path, reading } = workload else { panic!("{text}") };
        assert_ne!(reading, Reading::default());
        assert!(!path.to_string_lossy().contains(':'), "{path:?}");
    }
    assert_eq!(Reading::split("a:b.csv"), (Reading::default(), "a:b.csv"));
    let read = |word: &str, text: &str| {
        SizeDistribution::from_table(text, Reading::split(word).0).map_err(|e| e.to_string())
    };
    let one = read("percent:", "10 0.5\n20 1\n").unwrap_err();
    assert!(one.contains("1 per cent") && one.contains("`fraction:FILE`"), "{one}");
    let hundred = read("fraction:", "10 50\n20 100\n").unwrap_err();
    assert!(hundred.contains("`percent:FILE`"), "{hundred}");
    let neither = read("", "10 50\n20 97\n").unwrap_err();
    assert!(neither.contains("`percent:FILE` and `fraction:FILE`"), "{neither}");
    // The tables of this project keep their steps.
    let own = "size_bytes,cumulative_fraction\n100,0.5\n200,1\n";
    near(read("", own).unwrap().mean_bytes(), 150.0, 1e-9);
    near(read("linear:", own).unwrap().mean_bytes(), 125.0, 1e-9);
}

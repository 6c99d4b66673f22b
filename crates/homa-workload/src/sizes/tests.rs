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
    assert_eq!(Workload::parse("my.csv").unwrap(), Workload::File("my.csv".into()));
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
    let bad = Workload::File(path.clone()).sizes().unwrap_err();
    std::fs::remove_file(&path).unwrap();
    let text = bad.to_string();
    assert!(text.contains(&*path.to_string_lossy()) && text.contains("line 2"), "{text}");
}

#[test]
fn each_bad_line_is_named_with_what_is_expected_there() {
    use TableErrorKind as K;
    let cases: [(&str, usize, K); 13] = [
        ("", 1, K::Empty),
        ("# only a comment\n", 1, K::Empty),
        ("10,1\n", 1, K::Header),
        ("H\n", 2, K::Empty),
        ("H\n10 1\n", 3, K::Fields),
        ("H\n10,0.5,1\n", 3, K::Fields),
        ("H\n0,1\n", 3, K::Size("0".into())),
        ("H\n-4,1\n", 3, K::Size("-4".into())),
        ("H\n10,NaN\n", 3, K::Share("NaN".into())),
        ("H\n10,1.5\n", 3, K::Share("1.5".into())),
        ("H\n10,0.5\n10,1\n", 4, K::SizeOrder(10)),
        ("H\n10,0.5\n20,0.4\n", 4, K::ShareOrder),
        ("H\n10,0.5\n\n# more\n20,0.9\n", 6, K::Incomplete),
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

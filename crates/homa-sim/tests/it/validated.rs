//! What `run` refuses, `validate` refuses without a run.

use homa_sim::experiment::{run, validate};
use homa_sim::scenario::{Basis, OfferedLoad, Scenario, Traffic};

#[test]
fn validate_returns_the_error_of_run() {
    let refused = |scenario: Scenario| {
        let refused = run(&scenario, &mut |_| ()).unwrap_err();
        assert_eq!(validate(&scenario), Err(refused.clone()));
        refused.to_string()
    };
    let unknown = refused(Scenario { scheme: "hama".to_owned(), ..Scenario::default() });
    assert!(unknown.contains("homa-sim, homa-paper"), "{unknown}");
    for fraction in [0.0, -1.0, 1e300, f64::NAN] {
        let load = OfferedLoad::new(fraction, Basis::Paper);
        assert!(refused(Scenario { load, ..Scenario::default() }).contains("load.fraction"));
    }
    for (fraction, said) in [(80.0, "below 10: 0.8?"), (10.0, ": 0.1?"), (-1.0, "such as 0.8")] {
        let load = OfferedLoad::new(fraction, Basis::Paper);
        let refused = refused(Scenario { load, ..Scenario::default() });
        assert!(refused.ends_with(said), "{refused}");
    }
    let traffic = Traffic::ClientsServers {
        workload: "w4".to_owned(),
        clients: 100,
        servers: 100,
        max_bytes: None,
    };
    let scheme = "homa".to_owned();
    let crowded = refused(Scenario { scheme, traffic, ..Scenario::default() });
    assert!(crowded.contains("144"), "{crowded}");
}

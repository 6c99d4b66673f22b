//! Runs the examples that check their own results.

#[path = "../../examples/search.rs"]
mod search;

#[test]
fn the_search_service_answers_with_slow_and_dead_servers() {
    search::main().expect("every search ends");
}

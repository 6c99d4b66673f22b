//! The examples that check what they show run to their end.

#[path = "../../examples/search.rs"]
mod search;

#[test]
fn the_search_service_answers_with_slow_and_dead_servers() {
    search::main().expect("every search ends");
}

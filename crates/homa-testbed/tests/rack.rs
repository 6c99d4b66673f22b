use homa_testbed::*;
fn main() {
    let inside = isolate().unwrap();
    println!("{inside:?}");
    let rack = Rack::build(RackConfig::default(), &inside).unwrap();
    println!("rt {}", rack.switch_is_real_time());
    rack.take_interval().unwrap();
    let p = check::probe(&rack).unwrap();
    println!("{p:?}");
    let i = rack.take_interval().unwrap();
    println!("{}", check::judge(rack.config(), &i, None));
    println!("{:?}", SwitchInterval{lateness:Default::default(), ..i});
}

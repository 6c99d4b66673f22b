//! Tests of messages whose bytes arrive in any order, and of the memory that they take.

use super::incoming::{CERTAIN, GROWTH};
use super::*;

fn place(offset: u32, len: u32, total: u32) -> Placement {
    Placement { message: MessageId(3), total, offset, len }
}

#[test]
fn pieces_in_any_order_become_the_message() {
    let message: Vec<u8> = (0..100_000u32).map(|i| (i * 7) as u8).collect();
    for stride in [1usize, 7, 33, 69] {
        let mut messages = Messages::new(1 << 20);
        // There are 100 pieces, and every stride is coprime to 100.
        for step in 0..100 {
            let offset = step * stride % 100 * 1000;
            let piece = &message[offset..offset + 1000];
            messages.place(place(offset as u32, 1000, 100_000), piece);
        }
        assert!(messages.take(MessageId(3)).0 == message, "stride {stride}");
    }
}

/// Returns how many bytes of memory a message has made us write.
fn written(messages: &Messages) -> usize {
    let MessageSlot::Incoming(incoming) = &messages.slots[3] else { panic!("not incoming") };
    incoming.bytes.len() + incoming.ahead.values().map(Vec::len).sum::<usize>()
}

#[test]
fn a_message_grows_with_arrived_bytes_in_any_order() {
    const TOTAL: u32 = 16 << 20;
    for first in [0, 5_000, TOTAL - 1400] {
        let mut messages = Messages::new(u64::from(TOTAL));
        messages.place(place(first, 1400, TOTAL), &[1; 1400]);
        let MessageSlot::Incoming(incoming) = &messages.slots[3] else { panic!("not incoming") };
        assert!(incoming.bytes.capacity() <= GROWTH * 1400, "{first}");
        // 30 more pieces arrive far apart, and then the rest in order.
        let far = |n: u32| n * 500_000 + 50_000;
        for n in 0..30 {
            messages.place(place(far(n), 1, TOTAL), &[2]);
            assert!(written(&messages) <= GROWTH * (1400 + 1 + n as usize), "{first} {n}");
        }
        let taken = (0..30).map(|n| (far(n), 1)).chain([(first, 1400), (TOTAL, 0)]);
        let mut taken: Vec<(u32, u32)> = taken.collect();
        taken.sort_unstable();
        let mut at = 0;
        for (stop, len) in taken {
            while at < stop {
                let len = (stop - at).min(1400);
                messages.place(place(at, len, TOTAL), &vec![3; len as usize]);
                at += len;
            }
            at += len;
        }
        let (bytes, ..) = messages.take(MessageId(3));
        let count = |value| bytes.iter().filter(|&&byte| byte == value).count();
        assert_eq!((count(1), count(2), bytes.len()), (1400, 30, TOTAL as usize), "{first}");
        assert_eq!(count(0), 0);
    }
}

#[test]
fn a_long_message_is_moved_once_and_its_addresses_are_counted() {
    const TOTAL: u32 = 1_000_000;
    let mut messages = Messages::new(u64::from(TOTAL));
    for (id, most) in [(3, 1), (4, 3)] {
        let (mut at, mut moves) = (std::ptr::null(), 0);
        for offset in (0..TOTAL).step_by(1000) {
            let place = Placement { message: MessageId(id), ..place(offset, 1000, TOTAL) };
            messages.place(place, &[1; 1000]);
            let MessageSlot::Incoming(incoming) = &messages.slots[id as usize] else { panic!() };
            moves += usize::from(incoming.bytes.as_ptr() != at && offset > CERTAIN as u32);
            at = incoming.bytes.as_ptr();
        }
        assert!(moves <= most, "{id}: {moves} moves");
    }
    // The second message got no addresses, and still arrived completely.
    assert_eq!(messages.addresses, 0);
    assert_eq!(messages.take(MessageId(4)).0.len(), TOTAL as usize);
    assert_eq!(messages.addresses, 0);
    messages.release(MessageId(3));
    assert_eq!(messages.addresses, u64::from(TOTAL));
}

#[test]
fn outgoing_memory_is_counted_until_released() {
    let mut messages = Messages::new(1 << 20);
    messages.insert(MessageId(0), vec![5; 1000].into(), 3, RequestContext::NONE);
    let span = Span { message: MessageId(0), offset: 999, len: 1 };
    assert_eq!(messages.get(span), Some(&[5][..]));
    assert_eq!(messages.get(Span { len: 2, ..span }), None);
    assert_eq!([2, 3, 4].map(|to| messages.outgoing_to(to)), [0, 1000, 0]);
    messages.release(MessageId(0));
    messages.release(MessageId(0));
    assert_eq!((messages.outgoing_bytes(), messages.outgoing_to(3)), (0, 0));
}

#[test]
fn released_memory_is_reused_without_showing_old_bytes() {
    let mut messages = Messages::new(1 << 20);
    let secret = vec![7; 500];
    let memory = secret.as_ptr();
    messages.insert(MessageId(0), secret.into(), 0, RequestContext::NONE);
    messages.release(MessageId(0));
    messages.place(place(100, 100, 200), &[2; 100]);
    messages.place(place(0, 100, 200), &[1; 100]);
    let (bytes, ..) = messages.take(MessageId(3));
    assert_eq!(bytes.as_ptr(), memory);
    assert_eq!(bytes, [[1; 100], [2; 100]].concat());
}

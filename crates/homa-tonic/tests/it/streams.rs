//! Streams that are long, slow, abandoned or refused.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use homa_tonic::{Endpoint, Server};
use tokio_stream::StreamExt;
use tonic::{Code, Request};

use crate::generated::test_service_client::TestServiceClient;
use crate::generated::{
    Empty, ResponseParameters, SimpleRequest, StreamingInputCallRequest, StreamingOutputCallRequest,
};
use crate::service::{client, payload, reaches, serve, serve_by};

fn outputs(number: usize, size: usize) -> StreamingOutputCallRequest {
    let one = ResponseParameters { size: size as i32, interval_us: 0 };
    StreamingOutputCallRequest {
        response_parameters: vec![one; number],
        ..StreamingOutputCallRequest::default()
    }
}

#[tokio::test]
async fn thousands_of_messages_arrive_in_order_both_ways() {
    let running = serve().await;
    let mut client = client(&running).await;
    let inputs = (0..3_000).map(|size| StreamingInputCallRequest { payload: payload(size) });
    let inputs = client.streaming_input_call(tokio_stream::iter(inputs)).await.unwrap();
    assert_eq!(inputs.into_inner().aggregated_payload_size, 2_999 * 3_000 / 2);
    let mut request = outputs(0, 0);
    let sizes = (0..3_000).map(|size| ResponseParameters { size, interval_us: 0 });
    request.response_parameters = sizes.collect();
    let responses = client.streaming_output_call(request).await.unwrap().into_inner();
    let sizes: Vec<_> =
        responses.map(|response| response.unwrap().payload.unwrap().body.len()).collect().await;
    assert!(sizes.into_iter().eq(0..3_000));
}

#[tokio::test]
async fn a_slow_reader_delays_the_writer() {
    let running = serve().await;
    let mut client = client(&running).await;
    // The response has 40 MB. Unread, the service may write two windows of 64 kB and the
    // codec's buffer.
    let responses = client.streaming_output_call(outputs(4_000, 10_000)).await.unwrap();
    let mut responses = responses.into_inner();
    responses.next().await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let unread = running.seen.written.load(Ordering::SeqCst);
    assert!(unread < 60, "{unread} written, one read");
    assert_eq!(responses.map(Result::unwrap).collect::<Vec<_>>().await.len(), 3_999);
}

#[tokio::test]
async fn a_slow_service_delays_the_writer() {
    let running = serve().await;
    let mut client = client(&running).await;
    let taken = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = taken.clone();
    // Each input makes the service sleep for 2 s before it reads the next one.
    let slow = ResponseParameters { size: 1, interval_us: 2_000_000 };
    let inputs = (0..10_000).map(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        let mut input = outputs(0, 0);
        (input.response_parameters, input.payload) = (vec![slow], payload(10_000));
        input
    });
    let responses = client.full_duplex_call(tokio_stream::iter(inputs)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    // The opening takes 4 MB at once; after it come parts of 64 kB.
    let unread = taken.load(Ordering::SeqCst);
    assert!(unread < 500, "{unread} of 10,000 were taken from the writer");
    drop(responses);
}

#[tokio::test]
async fn an_idle_stream_asks_once() {
    let running = serve().await;
    let engine = homa::Engine::bind("127.0.0.1:0".parse().unwrap(), homa::Config::default());
    let engine = engine.unwrap();
    engine.drive_on_tokio().unwrap();
    let endpoint = Endpoint::from_shared(format!("homa://{}", running.at)).unwrap();
    let channel = endpoint.client(engine.client()).connect().await.unwrap();
    let (inputs, taken) = tokio::sync::mpsc::channel(1);
    let taken = tokio_stream::wrappers::ReceiverStream::new(taken);
    let responses = TestServiceClient::new(channel).full_duplex_call(taken).await.unwrap();
    let mut responses = responses.into_inner();
    let asked = || engine.metrics().protocol.resends_sent;
    for _ in 0..2 {
        inputs.send(outputs(1, 10)).await.unwrap();
        responses.next().await.unwrap().unwrap();
        let before = asked();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let asked = asked() - before;
        assert!(asked <= 2, "the pull, at most once, and what was lost: {asked}");
    }
}

#[tokio::test]
async fn a_request_that_is_too_long_to_encode_ends_its_stream() {
    let running = serve().await;
    let mut client = client(&running).await.max_encoding_message_size(1_000);
    let inputs = tokio_stream::iter([10, 100_000]).then(|size| async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        StreamingInputCallRequest { payload: payload(size) }
    });
    let call = client.streaming_input_call(Box::pin(inputs));
    let ended = tokio::time::timeout(Duration::from_secs(20), call).await;
    assert_eq!(ended.expect("it ends").unwrap_err().code(), Code::OutOfRange);
}

#[tokio::test]
async fn a_dropped_call_ends_its_service() {
    let running = serve().await;
    let mut client = client(&running).await;
    let mut request = Request::new(SimpleRequest::default());
    request.metadata_mut().insert("sleep", "1".parse().unwrap());
    let call = client.unary_call(request);
    assert!(tokio::time::timeout(Duration::from_millis(200), call).await.is_err());
    reaches(&running.seen.dropped, 1).await;
}

#[tokio::test]
async fn a_dropped_stream_ends_its_service() {
    let running = serve().await;
    let mut client = client(&running).await;
    let mut responses =
        client.streaming_output_call(outputs(4_000, 10_000)).await.unwrap().into_inner();
    responses.next().await.unwrap().unwrap();
    drop(responses);
    reaches(&running.seen.dropped, 1).await;
}

#[tokio::test]
async fn a_call_ends_at_its_timeout_at_both_ends() {
    let running = serve().await;
    let mut client = client(&running).await;
    let mut request = Request::new(SimpleRequest::default());
    request.metadata_mut().insert("sleep", "1".parse().unwrap());
    request.set_timeout(Duration::from_millis(200));
    let began = Instant::now();
    let status = client.unary_call(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(began.elapsed() < Duration::from_secs(10));
    reaches(&running.seen.dropped, 1).await;
}

#[tokio::test]
async fn a_message_beyond_the_limit_is_refused_with_a_status() {
    let running = serve().await;
    let mut client = client(&running).await.max_decoding_message_size(64 << 20);
    let request = SimpleRequest { response_size: 20 << 20, ..SimpleRequest::default() };
    let status = client.unary_call(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let request = SimpleRequest { payload: payload(20 << 20), ..SimpleRequest::default() };
    let status = client.unary_call(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    client.empty_call(Empty {}).await.unwrap();
}

#[tokio::test]
async fn a_service_that_panics_ends_only_its_call() {
    let running = serve().await;
    let mut client = client(&running).await;
    let mut request = Request::new(SimpleRequest::default());
    request.metadata_mut().insert("panic", "1".parse().unwrap());
    let status = client.unary_call(request).await.unwrap_err();
    assert!(
        matches!(status.code(), Code::Unavailable | Code::Internal | Code::Unknown),
        "{status}"
    );
    client.empty_call(Empty {}).await.unwrap();
}

#[tokio::test]
async fn a_drained_server_ends_after_its_calls_and_refuses_others() {
    let running = serve().await;
    let mut client = client(&running).await;
    // Each message takes a separate RPC, also after the server was asked to end.
    let mut slow = outputs(4, 8);
    slow.response_parameters.iter_mut().for_each(|one| one.interval_us = 200_000);
    let mut responses = client.streaming_output_call(slow.clone()).await.unwrap().into_inner();
    running.drain.send(()).unwrap();
    assert_eq!(responses.next().await.unwrap().unwrap().payload, payload(8));
    let refused = client.streaming_output_call(slow).await.unwrap().into_inner().next().await;
    let refused = refused.unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("may have been executed"), "{refused}");
    for _ in 1..4 {
        assert_eq!(responses.next().await.unwrap().unwrap().payload, payload(8));
    }
    assert!(responses.next().await.is_none());
    running.served.await.unwrap().unwrap();
    let status = client.empty_call(Empty {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}

#[tokio::test]
async fn streams_that_wait_do_not_count_against_the_limit() {
    let running = serve_by(Server::builder().concurrency_limit(1), homa::Config::default()).await;
    let mut client = client(&running).await;
    // One waits for the service, the other one for the client.
    let mut request = outputs(2, 8);
    request.response_parameters[1].interval_us = 60_000_000;
    let mut silent = client.streaming_output_call(request).await.unwrap().into_inner();
    silent.next().await.unwrap().unwrap();
    let (inputs, taken) = tokio::sync::mpsc::channel(1);
    inputs.send(outputs(1, 10)).await.unwrap();
    let taken = tokio_stream::wrappers::ReceiverStream::new(taken);
    let mut echoed = client.full_duplex_call(taken).await.unwrap().into_inner();
    for _ in 0..3 {
        echoed.next().await.unwrap().unwrap();
        let call = client.empty_call(Empty {});
        tokio::time::timeout(Duration::from_secs(20), call).await.expect("it is served").unwrap();
        inputs.send(outputs(1, 10)).await.unwrap();
    }
}

#[tokio::test]
async fn a_call_beyond_the_limit_is_not_begun() {
    let running = serve_by(Server::builder().concurrency_limit(1), homa::Config::default()).await;
    let mut client = client(&running).await;
    let sleeping = || {
        let mut request = Request::new(SimpleRequest::default());
        request.metadata_mut().insert("sleep", "1".parse().unwrap());
        let mut client = client.clone();
        tokio::spawn(async move { client.unary_call(request).await })
    };
    let calls = [sleeping(), sleeping()];
    reaches(&running.seen.slept, 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Only the service of one has begun, so only that is dropped.
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    client.empty_call(Empty {}).await.unwrap();
    assert_eq!(running.seen.dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_call_that_waits_for_room_ends_at_its_timeout() {
    let running = serve().await;
    let config = homa::Config::default().max_calls_per_server(1);
    let engine = homa::Engine::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
    engine.drive_on_tokio().unwrap();
    let endpoint = Endpoint::from_shared(format!("homa://{}", running.at)).unwrap();
    let channel = endpoint.client(engine.client()).connect().await.unwrap();
    let mut client = TestServiceClient::new(channel);
    let mut sleeping = Request::new(SimpleRequest::default());
    sleeping.metadata_mut().insert("sleep", "1".parse().unwrap());
    let mut first = client.clone();
    let first = tokio::spawn(async move { first.unary_call(sleeping).await });
    while engine.metrics().engine.calls_in_progress == 0 {
        tokio::task::yield_now().await;
    }
    let mut request = Request::new(Empty {});
    request.set_timeout(Duration::from_millis(100));
    let ended = tokio::time::timeout(Duration::from_secs(20), client.empty_call(request)).await;
    assert_eq!(ended.expect("it ends").unwrap_err().code(), Code::DeadlineExceeded);
    first.abort();
    client.empty_call(Empty {}).await.unwrap();
}

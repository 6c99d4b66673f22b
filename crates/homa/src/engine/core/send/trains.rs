//! Completes the datagrams of a batch: pads them, and joins them into trains.

use homa_proto::wire::datagram::{DATA_OVERHEAD, Draft};
use homa_proto::{Body, Data, Packet, RpcId, Time};

use super::{
    DATAGRAMS_MAX, DatagramContent, LONG_TRAIN, PackedDatagram, Packer, Peer, Route, Sources,
};
use crate::driver::{Outbox, TRAIN_MAX, Train, TrainPiece};
use crate::padding::Padding;

/// Most bytes that padding needs: two lengths, and the header of a FREEZE.
const PADDING_MAX: usize = 32;

/// How the datagrams of an engine are padded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pads {
    pub(super) padding: Padding,
    /// Bytes that the driver adds to a datagram.
    pub(super) overhead: usize,
}

impl Pads {
    /// The length to which a datagram is padded in a buffer of `room` bytes.
    pub(super) fn len(self, draft: &Draft, room: usize) -> usize {
        let [len, full] = [draft.len(), room].map(|bytes| bytes + self.overhead);
        self.padding.pad(len, draft.least_padding(), full) - self.overhead
    }
}

/// Whether a datagram with only this DATA packet has room for padding.
pub(super) fn has_room(now: Time, packet: &Packet, data: &Data, from: &Sources<'_>) -> bool {
    let extensions = match packet.begins_request() {
        true => from.messages.request_extensions(data.span.message, now).encoded_len(),
        false => 0,
    };
    let len = DATA_OVERHEAD + extensions + data.span.len as usize;
    from.peers.get(packet.peer).is_some_and(|peer| len + PADDING_MAX <= peer.datagram)
}

impl Packer {
    /// Pads a datagram of the batch, which then takes no more packets.
    pub(super) fn complete(&mut self, index: usize) {
        let pads = self.pads;
        let Some(datagram) = self.datagrams.get_mut(index) else { return };
        // Datagrams of other kinds hold one packet and have no room.
        let DatagramContent::Short(draft) = &mut datagram.content else { return };
        let Route {
            id: peer,
            local_port,
            priority,
            peer: Peer { address, datagram: room, .. },
            ..
        } = datagram.route;
        let len = pads.len(draft, room);
        if len > draft.len() {
            let (remote_port, id, body) = (address.port(), RpcId(0), Body::Freeze);
            let freeze = Packet { peer, priority, local_port, remote_port, id, body };
            let buffer = &mut self.outbox.bytes[datagram.start..datagram.start + room];
            if draft.pad(buffer, &freeze, len).is_ok() {
                datagram.len = len;
            }
        }
        datagram.content = DatagramContent::Alone;
    }

    /// Joins adjacent datagrams of the batch into trains.
    pub(super) fn form_trains(&mut self) {
        // Padding is the last packet of a datagram: no more may join it.
        if self.pads.padding != Padding::None {
            (0..self.datagrams.len()).for_each(|index| self.complete(index));
        }
        let Outbox { pieces, trains, .. } = &mut self.outbox;
        // Room is left, because the driver makes each datagram longer.
        let train_max = TRAIN_MAX - DATAGRAMS_MAX * self.pads.overhead;
        let mut last: Option<&Route> = None;
        let mut sliced = 0;
        for (index, datagram) in self.datagrams.iter().enumerate() {
            let PackedDatagram { route, start, len: buffered, content } = datagram;
            let buffer = *start..start + buffered;
            let (len, limit) = match content {
                DatagramContent::Short(_) | DatagramContent::Alone => (*buffered, train_max),
                DatagramContent::Long(span) => (buffered + span.len as usize, LONG_TRAIN),
            };
            // A shorter datagram ends its train, because the kernel cuts all but the last to one
            // size.
            let train = trains.last_mut().filter(|train: &&mut Train| {
                last.is_some_and(|last| last.same_way(route))
                    && train.len.is_multiple_of(train.datagram)
                    && len <= train.datagram
                    && train.len + len <= limit
                    && train.len < DATAGRAMS_MAX * train.datagram
            });
            // Datagrams that follow each other in the buffer are one piece.
            match (train.is_some(), pieces.last_mut()) {
                (true, Some(TrainPiece::Buffered(before))) if before.end == buffer.start => {
                    before.end = buffer.end;
                }
                _ => pieces.push(TrainPiece::Buffered(buffer)),
            }
            let first = pieces.len() - 1;
            // Its payload is in the message, in one slice or in several.
            if let DatagramContent::Long(span) = content {
                let of_this = self.slices[sliced..].iter().take_while(|(of, _)| *of == index);
                pieces.extend(of_this.map(|(_, slice)| TrainPiece::Message(*slice)));
                let slices = pieces.len() - first - 1;
                sliced += slices;
                if slices == 0 {
                    pieces.push(TrainPiece::Message(*span));
                }
            }
            match train {
                Some(train) => {
                    train.len += len;
                    train.pieces.end = pieces.len();
                }
                None => trains.push(Train {
                    to: route.peer.address,
                    link: route.peer.link,
                    socket: route.socket,
                    source: route.peer.source,
                    tos: self.map.tos(route.priority),
                    datagram: len,
                    len,
                    pieces: first..pieces.len(),
                }),
            }
            last = Some(route);
        }
    }
}

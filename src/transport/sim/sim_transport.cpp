// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/sim/sim_transport.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace farandole::sim {
namespace {

// A flag in Send::phase: the peer wants the bytes. Lower bits: sent pieces that it has not taken.
constexpr std::uint32_t kAccepted = std::uint32_t{1} << 31;

/// `bytes`, rounded down to a multiple of kPieceAlignment unless they are the whole message.
Bytes aligned(Bytes bytes, Bytes whole) {
  if (bytes == whole) return bytes;
  return Bytes{bytes.value() / Receive::kPieceAlignment * Receive::kPieceAlignment};
}

}  // namespace

SimTransport::SimTransport(Rank self, Network& network, Options options)
    : self_(self),
      network_(network),
      options_(options),
      capabilities_{
          .name = "sim", .follows = options.follows, .follow_bytes = options.eager_bytes_max},
      matcher_(static_cast<std::size_t>(network.rank_count()), options.pool) {}

SimTransport::~SimTransport() {
  while (Parcel* parcel = held_.pop()) network_.release(*parcel);
}

Result<void> SimTransport::add_peer(const Member& peer, Deadline deadline) {
  if (peer.rank.value() < 0 || peer.rank.value() >= network_.rank_count()) {
    return Error{ErrorKind::kInvalidArgument,
                 "argument 'peer' is rank " + std::to_string(peer.rank.value()) +
                     ", allowed is a rank below " + std::to_string(network_.rank_count()) + "."};
  }
  return connect({&peer.rank, 1}, deadline);
}

Result<void> SimTransport::connect(std::span<const Rank> peers, Deadline) {
  for (const Rank peer : peers) {
    if (!matcher_.failed(peer)) continue;
    return Error{ErrorKind::kRankFailed,
                 "rank " + std::to_string(peer.value()) + " is gone and cannot be connected."};
  }
  return {};
}

Parcel& SimTransport::reply(Parcel::Kind kind, Rank to, const Tag& tag, std::uint64_t message) {
  Parcel& parcel = network_.obtain();
  parcel.kind = kind;
  parcel.from = self_;
  parcel.to = to;
  parcel.tag = tag;
  parcel.message = message;
  return parcel;
}

// Sending ----------------------------------------------------------------------------------------

void SimTransport::post(Send& send) {
  send.start();
  if (matcher_.failed(send.peer)) return send.fail(ErrorKind::kRankFailed);
  if (matcher_.cancelled(send.tag.operation)) return send.fail(ErrorKind::kInternal);
  send.handle = ++last_message_;
  ++counters_.sent_messages;
  const bool whole = send.bytes <= options_.eager_bytes_max;
  announce(send, whole ? Parcel::Kind::kWhole : Parcel::Kind::kOffer, whole ? send.bytes : Bytes{});
  if (whole) {
    send.finish();
  } else {
    sends_.push(send);
  }
}

void SimTransport::announce(Send& send, Parcel::Kind kind, Bytes length) {
  Parcel& parcel = reply(kind, send.peer, send.tag, send.handle);
  parcel.signature = send.signature;
  parcel.bytes = send.bytes;
  parcel.offset = send.moved;
  parcel.length = length;
  parcel.taken = Bytes{};
  if (length.value() > 0) {
    std::memcpy(parcel.data.data(), send.source + send.moved.value(), length.value());
    send.moved += length;
    counters_.sent_bytes += length.value();
    if (send.along != nullptr) send.along(send.context, send.moved);
  }
  network_.put(parcel);
}

/// Sends the next piece if the peer can take it now; true if it was sent.
bool SimTransport::push(Send& send) {
  if ((send.phase & kAccepted) == 0 || (send.phase & ~kAccepted) >= options_.pieces_ahead) {
    return false;
  }
  const Bytes ready = aligned(send.available(), send.bytes);
  if (ready <= send.moved) return false;
  const std::size_t steps = options_.piece_max.value() / Receive::kPieceAlignment;
  const Bytes length{(1 + network_.draw(steps - 1)) * Receive::kPieceAlignment};
  ++send.phase;
  announce(send, Parcel::Kind::kPiece, std::min(length, ready - send.moved));
  if (send.moved == send.bytes) send.finish();
  return true;
}

Send* SimTransport::find_send(const Parcel& parcel) {
  Transfer* send = sends_.front();
  while (send != nullptr && send->handle != parcel.message) send = send->next;
  return static_cast<Send*>(send);
}

// Receiving --------------------------------------------------------------------------------------

void SimTransport::post(Receive& receive) {
  Arrival* arrival = matcher_.post(receive);
  if (arrival == nullptr) return;
  const Envelope& envelope = arrival->envelope;
  if (arrival->handle == 0) {
    if (receive.state == TransferState::kActive) take_whole(receive, arrival->payload);
  } else if (receive.state == TransferState::kActive) {
    start(receive, envelope.peer, arrival->handle);
  } else {
    network_.put(reply(Parcel::Kind::kDiscard, envelope.peer, envelope.tag, arrival->handle));
  }
  matcher_.release(*arrival);
}

void SimTransport::take_whole(Receive& receive, const std::byte* data) {
  receive.deliver(Bytes{}, data, receive.bytes);
  receive.moved = receive.bytes;
  counters_.received_bytes += receive.bytes.value();
  ++counters_.received_messages;
  receive.finish();
}

void SimTransport::start(Receive& receive, Rank from, std::uint64_t message) {
  receive.handle = message;
  receives_.push(receive);
  network_.put(reply(Parcel::Kind::kAccept, from, receive.tag, message));
}

Receive* SimTransport::find_receive(const Parcel& parcel) {
  Transfer* receive = receives_.front();
  while (receive != nullptr &&
         (receive->handle != parcel.message || receive->peer != parcel.from)) {
    receive = receive->next;
  }
  return static_cast<Receive*>(receive);
}

/// Delivers as much of a piece as may be delivered; true once the piece is not needed any more.
bool SimTransport::deliver(Parcel& parcel) {
  Receive* receive = find_receive(parcel);
  if (receive == nullptr) return true;
  if (parcel.offset + parcel.taken != receive->moved) return false;  // an earlier piece is held
  const Receive* behind = receive->behind;
  const bool free = behind == nullptr || behind->state == TransferState::kDone;
  const Bytes end = parcel.offset + parcel.length;
  const Bytes limit = free ? end : std::min(end, aligned(behind->moved, behind->bytes));
  if (limit > receive->moved) {
    const Bytes length = limit - receive->moved;
    receive->deliver(receive->moved, parcel.data.data() + parcel.taken.value(), length);
    parcel.taken += length;
    receive->moved = limit;
    counters_.received_bytes += length.value();
  }
  if (receive->moved == receive->bytes) {
    receives_.take_first([&](const Receive& one) { return &one == receive; });
    ++counters_.received_messages;
    receive->finish();
  }
  return limit == end;
}

bool SimTransport::deliver_held() {
  bool moved = false;
  held_.take_all([&](Parcel& parcel) {
    const Bytes before = parcel.taken;
    const bool done = deliver(parcel);
    moved |= done || parcel.taken != before;
    if (!done) return false;
    answer(Parcel::Kind::kCredit, parcel);
    network_.release(parcel);
    return true;
  });
  return moved;
}

// What arrives -----------------------------------------------------------------------------------

void SimTransport::arrive_message(Parcel& parcel) {
  const bool offered = parcel.kind == Parcel::Kind::kOffer;
  const Envelope envelope{parcel.from, parcel.tag, parcel.signature, parcel.bytes};
  const auto [fate, receive] = matcher_.arrive(envelope);
  if (fate == Matcher::Fate::kMatched) {
    if (offered) return start(*receive, parcel.from, parcel.message);
    take_whole(*receive, parcel.data.data());
  } else if (fate == Matcher::Fate::kEarly) {
    Arrival& early = matcher_.set_aside(envelope, offered ? Bytes{} : parcel.bytes);
    if (offered) {
      early.handle = parcel.message;
    } else if (parcel.bytes.value() > 0) {
      std::memcpy(early.payload, parcel.data.data(), parcel.bytes.value());
    }
  } else if (offered) {
    answer(Parcel::Kind::kDiscard, parcel);
  }
}

void SimTransport::arrive(Parcel& parcel) {
  if (matcher_.failed(parcel.from)) return network_.release(parcel);
  Send* send = nullptr;
  switch (parcel.kind) {
    case Parcel::Kind::kWhole:
    case Parcel::Kind::kOffer:
      arrive_message(parcel);
      break;
    case Parcel::Kind::kPiece:
      if (!deliver(parcel)) return held_.push(parcel);
      answer(Parcel::Kind::kCredit, parcel);
      break;
    case Parcel::Kind::kAccept:
      send = find_send(parcel);
      if (send != nullptr) send->phase |= kAccepted;
      break;
    case Parcel::Kind::kDiscard:
      send = sends_.take_first([&](const Send& one) { return one.handle == parcel.message; });
      if (send != nullptr) send->finish();
      break;
    case Parcel::Kind::kCredit:
      send = find_send(parcel);
      if (send != nullptr) --send->phase;
      break;
  }
  network_.release(parcel);
}

bool SimTransport::progress() {
  bool moved = false;
  while (Parcel* parcel = network_.take(self_)) {
    arrive(*parcel);
    moved = true;
  }
  moved |= deliver_held();
  sends_.take_all([&](Send& send) {
    while (send.state == TransferState::kActive && push(send)) moved = true;
    return send.state != TransferState::kActive;
  });
  return moved;
}

// Endings ----------------------------------------------------------------------------------------

template <class Predicate>
void SimTransport::end(Predicate unwanted, ErrorKind kind) {
  const auto fail = [&](Transfer& transfer) {
    if (!unwanted(transfer.peer, transfer.tag.operation)) return false;
    transfer.fail(kind);
    return true;
  };
  sends_.take_all(fail);
  receives_.take_all(fail);
  held_.take_all([&](Parcel& parcel) {
    if (!unwanted(parcel.from, parcel.tag.operation)) return false;
    answer(Parcel::Kind::kCredit, parcel);
    network_.release(parcel);
    return true;
  });
}

/// Releases early messages that nobody will receive; if `answered`, their senders are told.
void SimTransport::drop(Arrival* first, bool answered) {
  while (first != nullptr) {
    Arrival& arrival = *first;
    first = arrival.next;
    const auto& [peer, tag, signature, bytes] = arrival.envelope;
    if (answered && arrival.handle != 0) {
      network_.put(reply(Parcel::Kind::kDiscard, peer, tag, arrival.handle));
    }
    matcher_.release(arrival);
  }
}

bool SimTransport::cancel(OperationId operation) {
  end([&](Rank, OperationId one) { return one == operation; }, ErrorKind::kInternal);
  drop(matcher_.cancel(operation), true);
  if (late_cancels_ < options_.late_cancels) {
    ++late_cancels_;
    return false;
  }
  late_cancels_ = 0;
  return true;
}

void SimTransport::peer_failed(Rank peer) {
  end([&](Rank one, OperationId) { return one == peer; }, ErrorKind::kRankFailed);
  drop(matcher_.peer_failed(peer), false);
}

bool SimTransport::idle() const {
  for (int peer = 0; peer < network_.rank_count(); ++peer) {
    if (matcher_.awaits(Rank{peer})) return false;
  }
  return sends_.empty() && receives_.empty() && held_.empty();
}

}  // namespace farandole::sim

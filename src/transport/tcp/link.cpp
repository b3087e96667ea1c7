// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/link.hpp"

#include <algorithm>
#include <cstring>

#include "bootstrap/socket.hpp"

namespace farandole::tcp {
namespace {

constexpr std::size_t kTransfersExpected = 256;
constexpr std::size_t kSegmentsQueuedMax = 2;  // per connection
constexpr int kFlushRoundsMax = 8;
// Limit of a head to another host. An early one takes bandwidth from messages that are waited for.
constexpr std::size_t kFarHeadBytes = 32 << 10;
// Limit of a head to a rank with which this one does not exchange messages: that rank may be late,
// and early heads are copied.
constexpr std::size_t kUnevenHeadBytes = 128 << 10;

std::size_t one_and_a_half(std::size_t segment) {
  const std::size_t bytes = segment + segment / 2;
  return std::min<std::size_t>(bytes - bytes % Receive::kPieceAlignment, kSegmentBytesMax);
}

}  // namespace

bool is_near(int socket) {
  return local_endpoint(socket).host == peer_endpoint(socket).host;
}

Core::Core(Poller& poller_in, std::size_t rank_count, Bytes eager_bytes, Bytes segment)
    : poller(poller_in),
      head_bytes_max(eager_bytes.value()),
      segment_bytes(segment.value()),
      one_way_bytes(one_and_a_half(segment.value())),
      matcher(rank_count, Matcher::Pool{.arrival_count = kTransfersExpected, .block = eager_bytes}),
      outgoing(kTransfersExpected),
      incoming(kTransfersExpected) {
  busy.reserve(rank_count);
  lost.reserve(rank_count);
}

struct Link::Connection {
  Connection(int fd_in, std::uint64_t token_in) : fd(fd_in), token(token_in) {}
  int fd;  // -1 once lost
  const std::uint64_t token;
  bool blocked = false;  // the kernel takes no more until it reports room
  Input input;
  Output output;
};

Link::Link(Core& core, Rank peer) : core_(core), peer_(peer) {}

Link::~Link() {
  for (auto& connection : connections_) {
    if (connection->fd >= 0) core_.close(connection->fd);
  }
}

void Link::adopt(std::span<const int> sockets) {
  answers_.reserve(kTransfersExpected);
  head_bytes_max_ = core_.head_bytes_max;
  if (!is_near(sockets[0])) head_bytes_max_ = std::min(head_bytes_max_, kFarHeadBytes);
  for (const int fd : sockets) {
    const auto peer = static_cast<std::uint64_t>(peer_.value());
    connections_.push_back(std::make_unique<Connection>(fd, peer << 32 | connections_.size()));
    Connection& connection = *connections_.back();
    if (!core_.poller.add(fd, connection.token)) lose(connection);
  }
  mark_busy();
}

void Link::mark_busy() {
  if (busy_) return;
  busy_ = true;
  core_.busy.push_back(this);
}

// Closes the socket, which the peer has closed or on which it broke the protocol: otherwise epoll
// would report it for ever.
void Link::lose(Connection& connection) {
  if (connection.fd >= 0) {
    core_.poller.remove(connection.fd);
    core_.close(connection.fd);
    connection.fd = -1;
  }
  if (!lost_) core_.lost.push_back(peer_);
  lost_ = true;
}

// ---- sending

void Link::post(Send& send) {
  send.start();
  if (core_.matcher.failed(peer_)) return send.fail(ErrorKind::kRankFailed);
  if (core_.matcher.cancelled(send.tag.operation)) return send.fail(ErrorKind::kInternal);
  unsent_.push(send);
  mark_busy();
}

void Link::answer(const Frame& frame) {
  answers_.push_back(frame);
  mark_busy();
}

void Link::refuse(std::uint64_t send_id) {
  answer(Frame{.kind = FrameKind::kRefuse, .id = send_id});
}

bool Link::flush() {
  busy_ = false;
  bool moved = false;
  for (int round = 0; !lost_ && !connections_.empty(); ++round) {
    if (round == kFlushRoundsMax) {
      mark_busy();
      break;
    }
    fill();
    bool wrote = false;
    for (auto& connection : connections_) wrote |= write(*connection);
    if (!wrote) break;
    moved = true;
  }
  return moved;
}

void Link::fill_answers() {
  Output& last = connections_.back()->output;
  std::size_t answered = 0;
  for (; answered < answers_.size() && last.room() > 0; ++answered) {
    last.push(answers_[answered], nullptr, nullptr);
  }
  answers_.erase(answers_.begin(), answers_.begin() + static_cast<std::ptrdiff_t>(answered));
}

// Turns what waits into frames. The first connection keeps room for data, which it may carry too,
// so that small messages do not starve data.
void Link::fill() {
  fill_answers();
  const Output& first = connections_[0]->output;
  while (!unsent_.empty() && first.room() > kSegmentsQueuedMax) frame_head(*unsent_.pop());
  const std::size_t data_begin = connections_.size() > 2 ? 1 : 0;
  const std::size_t data_end = std::max<std::size_t>(connections_.size() - 1, 1);
  for (std::size_t round = 0; round < kSegmentsQueuedMax; ++round) {
    for (std::size_t i = data_begin; i < data_end; ++i) {
      const Output& output = connections_[i]->output;
      if (ready_.empty()) return;
      if (output.room() > 0 && output.segment_count() <= round) frame_segment(*connections_[i]);
    }
  }
}

std::size_t Link::head_bytes(const Send& send) const {
  const bool exchange =
      core_.senders.operation == send.tag.operation && core_.senders.only == peer_;
  const std::size_t most = exchange ? head_bytes_max_ : std::min(head_bytes_max_, kUnevenHeadBytes);
  return std::min(send.bytes.value(), most);
}

void Link::frame_head(Send& send) {
  const std::size_t bytes = send.bytes.value();
  const std::size_t head = head_bytes(send);
  if (bytes > head) send.handle = core_.outgoing.add({.send = &send, .framed_bytes = head});
  const Frame frame{.kind = FrameKind::kMessage,
                    .tag = send.tag,
                    .signature = send.signature,
                    .bytes = bytes,
                    .reply = send.handle,
                    .payload = static_cast<std::uint32_t>(head)};
  connections_[0]->output.push(frame, send.source, &send);
}

void Link::frame_segment(Connection& connection) {
  Send& send = *ready_.front();
  Outgoing& outgoing = *core_.outgoing.find(send.handle);
  const std::size_t offset = outgoing.framed_bytes;
  const std::size_t bytes = std::min(send.bytes.value() - offset, core_.frame_bytes());
  const Frame frame{.kind = FrameKind::kData,
                    .id = outgoing.receive_id,
                    .offset = offset,
                    .payload = static_cast<std::uint32_t>(bytes)};
  connection.output.push(frame, send.source + offset, &send);
  outgoing.framed_bytes += bytes;
  if (outgoing.framed_bytes == send.bytes.value()) ready_.pop();
}

bool Link::write(Connection& connection) {
  if (connection.output.empty() || connection.blocked || lost_) return false;
  const Output::Outcome outcome = connection.output.flush(connection.fd, *this);
  if (outcome.lost) {
    // What the peer sent before can still be read; reading then finds the end.
    if (!lost_) core_.lost.push_back(peer_);
    lost_ = true;
    return false;
  }
  connection.blocked = !connection.output.empty();
  if (connection.blocked) core_.poller.want_output(connection.fd, connection.token, true);
  return outcome.bytes > 0 || !connection.blocked;
}

void Link::writable(std::size_t index) {
  if (index >= connections_.size() || connections_[index]->fd < 0) return;
  Connection& connection = *connections_[index];
  connection.blocked = false;
  core_.poller.want_output(connection.fd, connection.token, false);
  mark_busy();
}

void Link::handed_over(Send& send, Bytes payload) {
  send.moved += payload;
  core_.counters.sent_bytes += payload.value();
  if (send.moved == send.bytes || refused(send)) finish(send);
}

bool Link::refused(const Send& send) {
  const Outgoing* outgoing = send.handle != 0 ? core_.outgoing.find(send.handle) : nullptr;
  return outgoing != nullptr && outgoing->refused && send.moved == Bytes{outgoing->framed_bytes};
}

void Link::finish(Send& send) {
  if (send.handle != 0) core_.outgoing.remove(send.handle);
  ++core_.counters.sent_messages;
  send.finish();
}

bool Link::on_answer(const Frame& frame) {
  Outgoing* outgoing = core_.outgoing.find(frame.id);
  if (outgoing == nullptr) return true;  // cancelled here in the meantime
  Send& send = *outgoing->send;
  if (send.peer != peer_ || outgoing->receive_id != 0 || outgoing->refused) return false;
  if (frame.kind == FrameKind::kRefuse) {
    outgoing->refused = true;
    if (refused(send)) finish(send);
    return true;
  }
  outgoing->receive_id = frame.reply;
  ready_.push(send);
  mark_busy();
  return true;
}

// ---- receiving

void Link::post(Receive& receive) {
  core_.senders.add(receive.tag.operation, peer_);
  Arrival* arrival = core_.matcher.post(receive);
  if (arrival == nullptr) return;
  if (receive.state == TransferState::kActive) {
    begin(receive, arrival->payload, arrival->moved, arrival->handle);
  } else if (arrival->handle != 0) {
    refuse(arrival->handle);
  }
  core_.matcher.release(*arrival);
}

std::optional<std::uint64_t> Link::on_head(const Frame& frame) {
  const Matcher::Verdict verdict =
      core_.matcher.arrive({peer_, frame.tag, frame.signature, Bytes{frame.bytes}});
  if (verdict.fate == Matcher::Fate::kEarly) return std::nullopt;
  if (verdict.fate == Matcher::Fate::kDiscarded) {
    if (frame.reply != 0) refuse(frame.reply);
    return 0;
  }
  await(*verdict.receive, Bytes{frame.payload}, frame.reply);
  return verdict.receive->handle;
}

bool Link::on_message(const Frame& frame, const std::byte* head) {
  const Bytes head_bytes{frame.payload};
  const Envelope envelope{peer_, frame.tag, frame.signature, Bytes{frame.bytes}};
  const Matcher::Verdict verdict = core_.matcher.arrive(envelope);
  switch (verdict.fate) {
    case Matcher::Fate::kMatched:
      begin(*verdict.receive, head, head_bytes, frame.reply);
      break;
    case Matcher::Fate::kEarly: {
      Arrival& arrival = core_.matcher.set_aside(envelope, head_bytes);
      std::memcpy(arrival.payload, head, head_bytes.value());
      arrival.handle = frame.reply;
      arrival.moved = head_bytes;
      break;
    }
    case Matcher::Fate::kDiscarded:
      if (frame.reply != 0) refuse(frame.reply);
      break;
  }
  return true;
}

void Link::begin(Receive& receive, const std::byte* head, Bytes head_bytes, std::uint64_t send_id) {
  receive.deliver(Bytes{0}, head, head_bytes);
  receive.moved = head_bytes;
  core_.counters.received_bytes += head_bytes.value();
  if (receive.moved == receive.bytes) return finish(receive);
  await(receive, head_bytes, send_id);
}

// Registers a receive for the rest of its message, which comes on this connection or, once
// `send_id` is answered, on the others.
void Link::await(Receive& receive, Bytes head_bytes, std::uint64_t send_id) {
  receive.handle = core_.incoming.add({&receive, head_bytes.value()});
  if (send_id == 0) return;
  answer(Frame{.kind = FrameKind::kReady, .id = send_id, .reply = receive.handle});
}

InputHandler::DataFate Link::on_data(const Frame& frame) {
  Incoming* incoming = core_.incoming.find(frame.id);
  if (incoming == nullptr) return DataFate::kDropped;  // cancelled here in the meantime
  const Receive& receive = *incoming->receive;
  incoming->announced_bytes += frame.payload;
  const bool fits = incoming->announced_bytes <= receive.bytes.value() &&
                    frame.offset + frame.payload <= receive.bytes.value();
  return receive.peer == peer_ && fits ? DataFate::kTaken : DataFate::kCorrupt;
}

Receive* Link::receive_of(std::uint64_t id) {
  Incoming* incoming = core_.incoming.find(id);
  return incoming != nullptr ? incoming->receive : nullptr;
}

void Link::delivered(std::uint64_t id, Bytes bytes) {
  Receive& receive = *receive_of(id);
  receive.moved += bytes;
  core_.counters.received_bytes += bytes.value();
  if (receive.moved == receive.bytes) finish(receive);
}

void Link::finish(Receive& receive) {
  if (receive.handle != 0) core_.incoming.remove(receive.handle);
  ++core_.counters.received_messages;
  receive.finish();
}

bool Link::read(std::size_t index) {
  if (index >= connections_.size() || connections_[index]->fd < 0) return false;
  const Input::Outcome outcome = connections_[index]->input.read(connections_[index]->fd, *this);
  if (outcome.lost) lose(*connections_[index]);
  if (outcome.corrupt) {
    for (auto& connection : connections_) lose(*connection);
  }
  return outcome.bytes > 0;
}

// ---- endings

template <class Predicate>
void Link::end_sends(Predicate unwanted, ErrorKind kind) {
  const auto end = [&](Send& send) {
    if (!unwanted(send)) return false;
    send.fail(kind);
    return true;
  };
  for (auto& connection : connections_) connection->output.cut(end);
  unsent_.take_all(end);
  ready_.take_all(end);
}

void Link::cancel(OperationId operation) {
  end_sends([&](const Send& send) { return send.tag.operation == operation; },
            ErrorKind::kInternal);
  mark_busy();
}

void Link::fail() {
  lost_ = true;
  end_sends([](const Send&) { return true; }, ErrorKind::kRankFailed);
  for (auto& connection : connections_) lose(*connection);
  connections_.clear();
  answers_.clear();
}

}  // namespace farandole::tcp

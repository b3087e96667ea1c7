// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/links.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace farandole {
namespace {

using namespace std::chrono_literals;
// How long a leaving rank remains a neighbour at least. In this time its departure reaches all
// ranks, and if all ranks leave, all learn of it over the existing links.
constexpr auto kStay = 250ms;
// A rank that leaves stays a neighbour for kStay. Ranks that had a link with it make new links when
// that one closes, the others after this time.
constexpr auto kLeavingDelay = 300ms;
constexpr std::size_t kReadBytes = 64 << 10;        // per link and turn
constexpr std::size_t kBacklogBytesMax = 64 << 20;  // unsent to a neighbour that does not read
constexpr int kBeatsPerTimeout = 6;
constexpr int kQuietPart = 3;  // a rank that is silent for timeout / kQuietPart is probed
// A rank is given up timeout / kSpareParts after the timeout: when an outage begins, the last beat
// may be a sixth of the timeout old, and a probe sent in the outage delays the next one by a
// twelfth.
constexpr int kSpareParts = 4;
// For how many timeouts a rank may be silent on its link while it answers probes. An outage delays
// what was sent in it by no more than its own length.
constexpr int kDelaysMax = 3;

}  // namespace

Links::Links(const Job& job, const Roster& roster, Probes& probes, const Session::Events& events)
    : job_(job),
      roster_(roster),
      probes_(probes),
      events_(events),
      self_(job.rank.value()),
      log_(job.size) {
  for (const Endpoint& endpoint : roster.listeners) {
    auto address = numeric_address(endpoint);
    addresses_.push_back(address ? *address : Address{});
  }
  call_neighbours(0ms);
}

void Links::watch(PollSet& set) {
  for (auto& [rank, link] : links_) {
    link.channel.watch(set);
    if (!link.finished) set.wake_by(link.beat_at);  // no beat follows the last message
    // From then on the probes wake it; they end when they have been answered for long.
    const auto ask_at = link.read_at + job_.timeout / kQuietPart;
    if (ask_at > turned_at_) set.wake_by(ask_at);
  }
  for (auto& [rank, call] : calls_) {
    if (call.dial) {
      call.dial->watch(set);
    } else {
      set.wake_by(call.due);
    }
  }
  if (phase_ == Phase::kLeaving && Clock::now() < stay_until_) set.wake_by(stay_until_);
}

void Links::serve(const PollSet& set) {
  for (auto& [rank, link] : links_) {
    if (link.channel.ready(set) != 0) listen_to(rank, link);
  }
  for (auto& [rank, call] : calls_) {
    if (call.dial) call.dial->serve(set);
  }
  keep_time();
  sweep();
}

bool Links::closed() const {
  const bool calling = std::any_of(calls_.begin(), calls_.end(),
                                   [](const auto& entry) { return entry.second.dial.has_value(); });
  return phase_ == Phase::kClosing && links_.empty() && !calling;
}

Verdict Links::admit(int rank) const {
  if (rank < 0 || rank >= job_.size || rank == self_) return Verdict::kNotNow;
  if (phase_ == Phase::kClosing) return Verdict::kNotNow;
  if (log_.failed(rank)) return Verdict::kGone;
  // If two ranks call each other, the call of the child counts.
  const auto call = calls_.find(rank);
  const bool calling = call != calls_.end() && call->second.dial;
  const auto link = links_.find(rank);
  const bool linked = link != links_.end() && !link->second.dead;
  return rank < self_ && (calling || linked) ? Verdict::kDuplicate : Verdict::kWelcome;
}

void Links::enter(int rank, Descriptor socket) {
  const auto now = Clock::now();
  links_.erase(rank);
  Link& link = links_.emplace(rank, Link{Channel(std::move(socket))}).first->second;
  link.heard_at = link.read_at = now;
  link.beat_at = now + job_.timeout / kBeatsPerTimeout;
  link.channel.send(log_.replay());
  if (log_.failed(rank)) return expel(rank);
  report_ready();
}

void Links::learn(const Departure& departure) {
  const auto frame = log_.add(departure);
  if (!frame) return;
  pass_on(*frame);
  const int rank = departure.rank.value();
  if (!departure.clean) expel(rank);
  if (rank != self_) {
    call_neighbours(departure.clean ? kLeavingDelay : 0ms);
    if (events_.departed) events_.departed(departure);
  }
}

void Links::flood(std::string_view message) {
  const auto frame = log_.add(Notice{self_, ++notices_sent_, std::string(message)});
  if (frame) pass_on(*frame);
}

void Links::ready() {
  if (std::exchange(ready_, true)) return;
  report_ready();
}

void Links::report_ready() {
  const int first_child = 2 * self_ + 1;
  for (int child = first_child; child < std::min(first_child + 2, job_.size); ++child) {
    if (!ready_children_.contains(child)) return;
  }
  if (!ready_) return;
  if (self_ == 0) return start();
  const auto parent = links_.find((self_ - 1) / 2);
  if (parent == links_.end() || parent->second.dead || parent->second.told) return;
  parent->second.told = true;
  parent->second.channel.send(encode_frame(static_cast<std::uint8_t>(ControlFrame::kReady), ""));
}

void Links::start() {
  const auto frame = log_.add_start();
  if (!frame) return;
  pass_on(*frame);
  if (events_.started) events_.started();
}

void Links::leave(std::string_view state, std::string_view reason) {
  if (phase_ != Phase::kMember) return;
  phase_ = Phase::kLeaving;
  stay_until_ = Clock::now() + kStay;
  learn(Departure{job_.rank, true, std::string(reason), std::string(state)});
}

void Links::pass_on(const std::string& frame) {
  for (auto& [rank, link] : links_) {
    if (!link.dead && !link.finished) link.channel.send(frame);
  }
}

void Links::listen_to(int rank, Link& link) {
  if (link.dead) return;
  link.channel.flush();
  const std::string bytes = link.channel.read(kReadBytes);
  if (!bytes.empty()) link.heard_at = link.read_at = Clock::now();
  link.frames.feed(bytes);
  while (!link.dead) {
    const auto frame = link.frames.next();
    if (!frame) break;
    understand(rank, link, *frame);
  }
  if (!link.dead && (link.channel.ended() || link.frames.broken())) end_of(rank, link);
}

void Links::understand(int rank, Link& link, const Frame& frame) {
  switch (static_cast<ControlFrame>(frame.type)) {
    case ControlFrame::kBeat:
      return;
    case ControlFrame::kDeparture:
      if (const auto departure = decode_departure(frame.payload)) {
        if (departure->rank != job_.rank) {
          learn(*departure);
        } else if (departure->clean) {
          link.knows = true;
        } else {
          cut_off(rank, departure->reason);
        }
      }
      return;
    case ControlFrame::kNotice:
      if (auto notice = decode_notice(frame.payload)) {
        const auto fresh = notice->from == self_ ? std::nullopt : log_.add(*notice);
        if (!fresh) return;
        pass_on(*fresh);
        if (events_.notice) events_.notice(Rank{notice->from}, notice->message);
      }
      return;
    case ControlFrame::kReady:
      ready_children_.insert(rank);
      return report_ready();
    case ControlFrame::kStarted:
      return start();
    case ControlFrame::kExpelled:
      return cut_off(rank, frame.payload);
  }
  link.dead = true;
  learn(Departure{Rank{rank}, false, "sent a malformed control message", ""});
}

/// The end of a link is a death, unless a departure came before or this rank has ended the link.
void Links::end_of(int rank, Link& link) {
  link.dead = true;
  if (log_.departure(rank)) {
    hurry_calls();
  } else if (!link.finished) {
    learn(Departure{Rank{rank}, false, "died", ""});
  }
}

void Links::expel(int rank) {
  const auto found = links_.find(rank);
  if (found == links_.end() || found->second.dead) return;
  found->second.channel.send(encode_frame(static_cast<std::uint8_t>(ControlFrame::kExpelled),
                                          log_.departure(rank)->reason));
  found->second.dead = true;
}

/// The others have given this rank up, for instance because it was stopped for too long. They will
/// not talk to it again, so this rank counts all of them as gone.
void Links::cut_off(int by, const std::string& reason) {
  if (phase_ != Phase::kMember) return;
  for (auto& [rank, link] : links_) link.dead = true;
  for (int rank = 0; rank < job_.size; ++rank) {
    if (rank == self_) continue;
    const Departure departure{
        Rank{rank}, false,
        "cut this rank off, which " + reason + " according to rank " + std::to_string(by), ""};
    if (log_.add(departure) && events_.departed) events_.departed(departure);
  }
}

bool Links::all_know() const {
  return std::all_of(neighbours_.begin(), neighbours_.end(), [this](int rank) {
    const auto link = links_.find(rank);
    return link != links_.end() && link->second.knows;
  });
}

void Links::close() {
  links_.clear();
  calls_.clear();
}

void Links::keep_time() {
  const auto now = Clock::now();
  // If this process itself was stopped, the silence is its own, not that of its neighbours.
  const auto lost = now - turned_at_ > job_.timeout / 2 ? now - turned_at_ : 0ns;
  turned_at_ = now;
  for (auto& [rank, link] : links_) {
    if (link.dead) continue;
    link.heard_at = std::min(link.heard_at + lost, now);
    link.read_at = std::min(link.read_at + lost, now);
    keep_time(rank, link, now);
  }
  for (auto& [rank, call] : calls_) {
    if (call.dial) {
      settle(rank, call);
    } else if (now >= call.due) {
      attempt(rank, call);
    }
  }
  const bool alone = log_.gone_count() == job_.size;
  const bool told = now >= stay_until_ && all_know();
  if (phase_ == Phase::kLeaving && (alone || told)) phase_ = Phase::kClosing;
  if (phase_ != Phase::kClosing) return;
  for (auto& [rank, link] : links_) {
    if (link.finished || link.channel.pending()) continue;
    link.channel.finish();
    link.finished = true;
  }
}

void Links::keep_time(int rank, Link& link, Clock::time_point now) {
  if (now >= link.beat_at && !link.finished) {
    link.channel.send(encode_frame(static_cast<std::uint8_t>(ControlFrame::kBeat), ""));
    link.beat_at = now + job_.timeout / kBeatsPerTimeout;
  }
  if (now >= link.read_at + job_.timeout / kQuietPart) probes_.want(rank);
  if (const auto answered = probes_.answered(rank)) {
    link.heard_at = std::max(link.heard_at, *answered);
  }
  if (now >= link.heard_at + job_.timeout + job_.timeout / kSpareParts) {
    learn(Departure{Rank{rank}, false, "went silent for " + describe(job_.timeout), ""});
  } else if (now >= link.read_at + kDelaysMax * job_.timeout && events_.stalled) {
    link.read_at = now;
    events_.stalled(Rank{rank}, job_.rank, "control messages");
  } else if (link.channel.pending_bytes() > kBacklogBytesMax) {
    learn(Departure{Rank{rank}, false, "does not read its control messages", ""});
  }
}

void Links::sweep() {
  std::erase_if(links_, [](const auto& entry) { return entry.second.dead; });
  // A call under way may finish: the other side may have taken it for a link already, and would
  // take its end for a death.
  std::erase_if(calls_,
                [this](const auto& entry) { return !entry.second.dial && !wanted(entry.first); });
}

}  // namespace farandole

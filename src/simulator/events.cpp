// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulator/events.hpp"

#include <algorithm>
#include <memory>

#include "simulator/event_queue.hpp"
#include "simulator/fluid.hpp"
#include "simulator/message_cost.hpp"
#include "simulator/round_cache.hpp"
#include "simulator/walker.hpp"

namespace farandole {
namespace {

using events::ActionName;
using events::Aside;
using events::kArrived;
using events::kFinished;
using events::Message;
using events::Pool;
using events::Waiting;
using events::Walker;
using Instruction = Workload::Instruction;

// Equal times are computed by different sums; times at most this far apart, relatively, are one
// moment.
constexpr double kSameMoment = 1e-12;

class Events {
 public:
  Events(const Network& network, std::span<const SimulatedCall> calls,
         const SimulationOptions& options)
      : network_(network),
        counts_matter_(counts_matter(network.machine())),
        calls_(calls),
        fluid_(network) {
    result_.link_bytes.assign(network.capacities().size(), 0.0);
    for (std::uint32_t c = 0; c < calls.size(); ++c) add_call(c, options);
  }

  Result<PathResult> run() {
    while (!queue_.empty() && !failure_) {
      now_ = queue_.next_time();
      const double moment = now_ + now_ * kSameMoment;
      while (!queue_.empty() && queue_.next_time() <= moment) take(queue_.pop());
      for (const Fluid::End& end : fluid_.settle(now_)) {
        const std::uint32_t message = message_of_[end.flow];
        queue_.push({end.time, Event::Kind::kEnd, message, ++messages_[message].version});
      }
    }
    if (failure_) return *std::move(failure_);
    if (finished_ < walkers_.size()) return never_ends();
    return result();
  }

 private:
  struct Call {
    std::unique_ptr<Workload> workload;
    std::unique_ptr<RoundCache> rounds;
    std::uint32_t first_walker = 0;
    std::vector<double> stage_clocks;  // [rank][stage + 1], when each begins; the last: ends
  };

  void add_call(std::uint32_t number, const SimulationOptions& options) {
    const SimulatedCall& call = calls_[number];
    Call& state = state_.emplace_back();
    state.workload = std::make_unique<Workload>(*call.schedule, call.bytes, network_.machine());
    state.rounds = std::make_unique<RoundCache>(*state.workload);
    state.first_walker = static_cast<std::uint32_t>(walkers_.size());
    const auto p = static_cast<std::size_t>(state.workload->rank_count());
    state.stage_clocks.assign(p * (state.workload->stage_count() + 1), 0.0);
    result_.finish_seconds.emplace_back(p, 0.0);
    aside_.resize(aside_.size() + p);
    for (std::size_t r = 0; r < p; ++r) {
      Walker& walker = walkers_.emplace_back();
      walker.call = number;
      walker.rank = static_cast<std::int32_t>(r);
      if (!options.slow_down.empty()) {
        walker.slow_down =
            options.slow_down[static_cast<std::size_t>(network_rank(walker, walker.rank))];
      }
      const double start = call.start_seconds.empty() ? 0.0 : call.start_seconds[r];
      queue_.push({start, Event::Kind::kEnter, state.first_walker + walker.rank_number(), 0});
    }
  }

  void take(const Event& event) {
    switch (event.kind) {
      case Event::Kind::kEnter:
        advance(event.subject);
        break;
      case Event::Kind::kBegin:
        begin_transfer(event.subject);
        break;
      case Event::Kind::kEnd:
        if (messages_[event.subject].version == event.detail) end_transfer(event.subject);
        break;
      case Event::Kind::kAction:
        finish_action({event.subject, event.detail});
        break;
    }
  }

  // Advances a rank until it waits for something.
  void advance(std::uint32_t number) {
    Walker& walker = walkers_[number];
    Call& call = state_[walker.call];
    while (!failure_) {
      if (walker.is_entering) return post_all(number);
      if (walker.next == call.workload->instructions().size()) return finish(walker);
      const Instruction& instruction = call.workload->instructions()[walker.next];
      auto& counter = aside_[number].counters[static_cast<std::size_t>(instruction.depth)];
      switch (instruction.kind) {
        case Instruction::Kind::kLoopBegin:
          counter = 0;
          ++walker.next;
          break;
        case Instruction::Kind::kLoopEnd:
          walker.next = ++counter < instruction.iterations ? instruction.jump : walker.next + 1;
          if (walker.next != instruction.jump) counter = 0;
          break;
        case Instruction::Kind::kLocal:
          ++walker.next;
          return enter_at(number, now_ + instruction.seconds * walker.slow_down);
        case Instruction::Kind::kRound:
          if (enter_round(number)) return;
          break;
      }
    }
  }

  void enter_at(std::uint32_t walker, double time) {
    queue_.push({time, Event::Kind::kEnter, walker, 0});
  }

  // False if the rank has nothing to do in the round, or on failure. leave_round() leaves it.
  bool enter_round(std::uint32_t number) {
    Walker& walker = walkers_[number];
    Call& call = state_[walker.call];
    const Instruction& instruction = call.workload->instructions()[walker.next];
    time_stages(walker, instruction.stage);
    auto found = call.rounds->find(walker.next, aside_[number].counters);
    if (!found) {
      failure_ = std::move(found).error();
      return false;
    }
    walker.round = *found;
    if (counts_matter_ && walker.round->counts.empty()) {
      walker.round->counts =
          count_messages(network_, walker.round->timed, calls_[walker.call].ranks);
    }
    const std::span<const TimedAction> actions = walker.round->timed.of(walker.rank);
    walker.actions = actions.data();
    walker.open = walker.action_count = static_cast<std::uint32_t>(actions.size());
    if (actions.empty()) {
      leave_round(walker);
      return false;
    }
    walker.is_entering = true;
    const double call_seconds = begin_stage(walker, instruction.stage);
    if (call_seconds > 0) {
      enter_at(number, now_ + call_seconds * walker.slow_down);
    } else {
      post_all(number);
    }
    return true;
  }

  // The seconds of the call, if this is the first round with messages in its stage.
  double begin_stage(Walker& walker, std::int32_t stage) {
    walker.begins = false;
    if (walker.stage_begun == stage) return 0;
    double seconds = 0;
    for (const TimedAction& action : walker.round_actions()) {
      if (action.kind == Action::Kind::kLocal) continue;
      const auto hop = static_cast<std::size_t>(hop_of(walker, action));
      seconds = std::max(seconds, network_.machine().hops[hop].call);
      walker.begins = true;
    }
    if (walker.begins) walker.stage_begun = stage;
    return seconds;
  }

  void time_stages(Walker& walker, std::int32_t stage) {
    Call& call = state_[walker.call];
    const std::size_t row = walker.rank_number() * (call.workload->stage_count() + 1);
    while (walker.stage_timed < stage) {
      call.stage_clocks[row + static_cast<std::size_t>(++walker.stage_timed)] = now_;
    }
  }

  void post_all(std::uint32_t number) {
    Walker& walker = walkers_[number];
    const std::span<const TimedAction> actions = walker.round_actions();
    walker.is_entering = false;
    if (std::ranges::any_of(actions, &TimedAction::in_order)) {
      aside_[number].progress.assign(actions.size(), 0);
    }
    for (std::uint32_t a = 0; a < actions.size(); ++a) {
      if (!actions[a].after_previous) post({number, a});
    }
  }

  const MessageCounts& counts_of(const Walker& walker) const {
    return walker.round->counts[walker.rank_number()];
  }

  void post(ActionName name) {
    Walker& walker = walkers_[name.walker];
    const TimedAction& action = walker.actions[name.action];
    if (action.kind == Action::Kind::kLocal) {
      const double end = now_ + action.local_seconds * walker.slow_down;
      queue_.push({end, Event::Kind::kAction, name.walker, name.action});
      return;
    }
    const bool sends = action.kind == Action::Kind::kSend;
    const std::uint32_t first = state_[walker.call].first_walker;
    const std::uint32_t to = sends ? first + static_cast<std::uint32_t>(action.peer) : name.walker;
    const std::int32_t from = sends ? walker.rank : action.peer;
    // At most one fits: verify() allows a rank one send per lane and round, and a round ends when
    // all messages have been received.
    const auto fits = [&](const Waiting& each) {
      return each.from == from && each.lane == action.lane && each.kind != action.kind;
    };
    std::uint32_t* other = &walkers_[to].waiting;
    while (*other != Walker::kNobody && !fits(waiting_[*other])) other = &waiting_[*other].next;
    if (*other == Walker::kNobody) {
      const std::uint32_t number = waiting_.take();
      waiting_[number] = {name, from, action.lane, action.kind, walkers_[to].waiting};
      walkers_[to].waiting = number;
      return;
    }
    const std::uint32_t number = *other;
    const ActionName met = waiting_[number].name;
    *other = waiting_[number].next;
    waiting_.give_back(number);
    start(sends ? name : met, sends ? met : name);
  }

  void start(ActionName send, ActionName receive) {
    const std::uint32_t number = messages_.take();
    Message& message = messages_[number];
    const Walker& from = walkers_[send.walker];
    const Walker& to = walkers_[receive.walker];
    message.send = send;
    message.receive = receive;
    message.bytes = from.actions[send.action].bytes;
    MessagePrice cost = cost_of(from, to);
    if (counts_matter_) {
      pay_for_others(network_.machine(), counts_of(from), counts_of(to), cost);
    }
    const HopCost& hop = network_.machine().hops[static_cast<std::size_t>(cost.hop)];
    message.efficiency = cost.efficiency;
    message.transfer_bytes = message.bytes * (from.begins ? 1 + hop.fill_chunks : 1);
    message.flows = message.bytes > 0 && cost.fixed_rate <= 0;
    result_.messages += 1;
    result_.bytes += message.bytes;
    const double begin = now_ + cost.head_seconds;
    if (message.flows) {
      queue_.push({begin, Event::Kind::kBegin, number, 0});
      return;
    }
    const double seconds =
        cost.fixed_rate > 0 ? message.transfer_bytes / (cost.fixed_rate * cost.efficiency) : 0;
    queue_.push({begin + seconds, Event::Kind::kEnd, number, ++message.version});
  }

  // The cost of a message by itself. Sets links_ to those that it shares.
  MessagePrice cost_of(const Walker& from, const Walker& to) {
    links_.clear();
    return message_cost(network_, network_rank(from, from.rank), network_rank(to, to.rank),
                        state_[from.call].workload->stage(from.stage_begun), links_);
  }

  void begin_transfer(std::uint32_t number) {
    Message& message = messages_[number];
    cost_of(walkers_[message.send.walker], walkers_[message.receive.walker]);
    message.flow = fluid_.join(links_, message.transfer_bytes, message.efficiency, now_);
    if (message_of_.size() <= message.flow) message_of_.resize(message.flow + 1);
    message_of_[message.flow] = number;
    for (const std::int32_t link : links_) {
      result_.link_bytes[static_cast<std::size_t>(link)] += message.bytes;
    }
  }

  void end_transfer(std::uint32_t number) {
    Message& message = messages_[number];
    ++message.version;
    if (message.flows) fluid_.leave(message.flow);
    const ActionName send = message.send, receive = message.receive;
    messages_.give_back(number);
    finish_action(send);
    std::vector<std::uint8_t>& progress = aside_[receive.walker].progress;
    const bool waits = walkers_[receive.walker].actions[receive.action].in_order &&
                       (progress[receive.action - 1] & kFinished) == 0;
    if (waits) {
      progress[receive.action] = kArrived;
    } else {
      finish_receive(receive);
    }
  }

  // The message has arrived, and its turn has come.
  void finish_receive(ActionName receive) {
    const Walker& to = walkers_[receive.walker];
    const double reduction = to.actions[receive.action].local_seconds * to.slow_down;
    if (reduction > 0) {
      queue_.push({now_ + reduction, Event::Kind::kAction, receive.walker, receive.action});
    } else {
      finish_action(receive);
    }
  }

  void finish_action(ActionName name) {
    Walker& walker = walkers_[name.walker];
    const std::uint32_t next = name.action + 1;
    const bool is_last = next == walker.action_count;
    if (walker.actions[name.action].in_order || (!is_last && walker.actions[next].in_order)) {
      aside_[name.walker].progress[name.action] |= kFinished;
    }
    if (!is_last) {
      const TimedAction& following = walker.actions[next];
      if (following.after_previous) post({name.walker, next});
      if (following.in_order && aside_[name.walker].progress[next] == kArrived) {
        finish_receive({name.walker, next});
      }
    }
    if (--walker.open > 0) return;
    leave_round(walker);
    advance(name.walker);
  }

  void leave_round(Walker& walker) {
    state_[walker.call].rounds->release(walker.next, walker.round);
    walker.actions = nullptr;
    walker.action_count = 0;
    ++walker.next;
  }

  void finish(Walker& walker) {
    time_stages(walker, static_cast<std::int32_t>(state_[walker.call].workload->stage_count()));
    result_.finish_seconds[walker.call][walker.rank_number()] = now_;
    result_.seconds = std::max(result_.seconds, now_);
    ++finished_;
  }

  // The network's number of a rank of the walker's call.
  std::int32_t network_rank(const Walker& walker, std::int32_t rank) const {
    const auto& ranks = calls_[walker.call].ranks;
    return ranks.empty() ? rank : ranks[static_cast<std::size_t>(rank)];
  }
  Hop hop_of(const Walker& walker, const TimedAction& action) const {
    return network_.hop(network_rank(walker, walker.rank), network_rank(walker, action.peer));
  }

  PathResult result() {
    for (std::size_t c = 0; c < state_.size(); ++c) {
      const auto& finish = result_.finish_seconds[c];
      const auto last = std::max_element(finish.begin(), finish.end()) - finish.begin();
      const std::size_t stages = state_[c].workload->stage_count();
      const double* clocks = &state_[c].stage_clocks[static_cast<std::size_t>(last) * (stages + 1)];
      std::vector<double>& seconds = result_.stage_seconds.emplace_back();
      for (std::size_t s = 0; s < stages; ++s) seconds.push_back(clocks[s + 1] - clocks[s]);
    }
    return std::move(result_);
  }

  Error never_ends() const {
    for (const Walker& receiver : walkers_) {
      if (receiver.waiting == Walker::kNobody) continue;
      const ActionName name = waiting_[receiver.waiting].name;
      const Walker& walker = walkers_[name.walker];
      const TimedAction& action = walker.actions[name.action];
      const bool sends = action.kind == Action::Kind::kSend;
      return {ErrorKind::kInvalidArgument,
              "schedule \"" + calls_[walker.call].schedule->algorithm + "\" never ends: rank " +
                  std::to_string(walker.rank) +
                  (sends ? " sends to rank " : " receives from rank ") +
                  std::to_string(action.peer) + " on lane " + std::to_string(action.lane) +
                  ", and nobody meets it."};
    }
    return {ErrorKind::kInternal, "events ran out before the ranks had finished."};
  }

  const Network& network_;
  const bool counts_matter_;
  std::span<const SimulatedCall> calls_;
  Fluid fluid_;
  EventQueue queue_;
  double now_ = 0;
  std::vector<Call> state_;
  std::vector<Walker> walkers_;
  std::vector<Aside> aside_;  // [walker]
  Pool<Waiting> waiting_;
  Pool<Message> messages_;
  std::vector<std::uint32_t> message_of_;  // [flow]
  std::vector<std::int32_t> links_;        // of one message
  std::size_t finished_ = 0;
  std::optional<Error> failure_;
  PathResult result_;
};

}  // namespace

Result<PathResult> simulate_events(const Network& network, std::span<const SimulatedCall> calls,
                                   const SimulationOptions& options) {
  return Events(network, calls, options).run();
}

}  // namespace farandole

// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "unit/algorithms/reference_executor.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

namespace farandole {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// `sum` tells what was added, `tree` in which order: equal trees, equal rounding.
struct Element {
  std::uint64_t sum, tree;
  bool operator==(const Element&) const = default;
};
using Elements = std::vector<Element>;

Element input(std::int64_t rank, std::int64_t chunk, std::int64_t element) {
  const auto seed = static_cast<std::uint64_t>((rank * 1000 + chunk) * 10 + element);
  return {mix(seed + 1), mix(~seed)};
}

Element reduced(const Element& a, const Element& b) {
  return {a.sum + b.sum, mix(a.tree * 3 + mix(b.tree))};
}

struct Broken {
  std::string reason;
};

class Reference {
 public:
  Reference(const Expanded& expanded, const Regime& regime)
      : header_(expanded.header), steps_(expanded.ranks), regime_(regime) {
    ranks_.resize(static_cast<std::size_t>(header_.rank_count));
    for (std::int64_t r = 0; r < header_.rank_count; ++r) place(r);
  }

  void run() {
    for (std::int64_t r = 0; r < header_.rank_count; ++r) open_round(r);
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::int64_t i = 0; i < header_.rank_count; ++i) {
        const std::int64_t r = regime_.reversed ? header_.rank_count - 1 - i : i;
        if (r != regime_.frozen) moved = sweep(r) || moved;
      }
    }
    if (regime_.frozen) return nobody_passed();
    for (std::int64_t r = 0; r < header_.rank_count; ++r) {
      if (!finished(r)) throw Broken{"deadlock"};
    }
    for (const auto& [route, messages] : channels_) {
      if (!messages.empty()) throw Broken{"message left over"};
    }
    for (std::int64_t r = 0; r < header_.rank_count; ++r) compare(r);
  }

 private:
  enum class State { kWaiting, kPosted, kDone };
  struct RankState {
    std::vector<Elements> chunks;  // in, then out (the same chunks in place), then scratch
    std::size_t round = 0;
    std::vector<State> states;
  };

  RankState& at(std::int64_t r) { return ranks_[static_cast<std::size_t>(r)]; }
  bool is(std::initializer_list<Collective> any) const {
    return std::find(any.begin(), any.end(), header_.collective) != any.end();
  }
  bool one_each() const {
    return !is({Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast});
  }
  bool reads_in(std::int64_t r) const {
    return r == header_.root || !is({Collective::kBroadcast, Collective::kScatter});
  }
  bool gets_out(std::int64_t r) const {
    return r == header_.root || !is({Collective::kReduce, Collective::kGather});
  }
  std::int64_t length(std::int64_t chunk) const { return one_each() ? 2 : 1 + chunk % 3; }
  bool finished(std::int64_t r) {
    return at(r).round == steps_[static_cast<std::size_t>(r)].size();
  }
  const ConcreteRound& round_of(std::int64_t r) {
    return steps_[static_cast<std::size_t>(r)][at(r).round];
  }

  void place(std::int64_t r) {
    constexpr std::size_t kLengthMax = 3;
    const std::int64_t ins = chunks_of(header_, Buffer::kIn);
    const std::int64_t total = ins + chunks_of(header_, Buffer::kOut) + header_.scratch_slots;
    for (std::int64_t c = 0; c < total; ++c) {
      const auto garbage = static_cast<std::uint64_t>(1'000'000 + r * 1000 + c);
      at(r).chunks.push_back(Elements(kLengthMax, Element{mix(garbage), mix(garbage)}));
    }
    if (!reads_in(r)) return;
    for (std::int64_t c = 0; c < ins; ++c) {
      for (std::int64_t e = 0; e < length(c); ++e) {
        chunk(r, Buffer::kIn, c)[static_cast<std::size_t>(e)] = input(r, c, e);
      }
    }
  }

  Elements& chunk(std::int64_t r, Buffer buffer, std::int64_t c) {
    const std::int64_t ins = chunks_of(header_, Buffer::kIn);
    const std::int64_t outs = chunks_of(header_, Buffer::kOut);
    if (c < 0 || c >= chunks_of(header_, buffer)) throw Broken{"chunk out of range"};
    std::int64_t place = c;
    if (buffer == Buffer::kOut) place += ins;
    if (buffer == Buffer::kScratch) place += ins + outs;
    if (buffer == Buffer::kOut && is({Collective::kGather}) && !gets_out(r)) {
      throw Broken{"a buffer that is not there"};
    }
    if (regime_.in_place && is({Collective::kAllgather, Collective::kGather})) {
      if (buffer == Buffer::kIn) place = ins + r;  // in is chunk r of out
    } else if (regime_.in_place && buffer == Buffer::kOut) {
      place = is({Collective::kReducescatter, Collective::kScatter}) ? r : c;
    }
    return at(r).chunks.at(static_cast<std::size_t>(place));
  }

  template <class Visit>
  void for_each_element(std::int64_t r, const ConcreteSpan& span, Visit visit) {
    if (span.count < 0) throw Broken{"negative count"};
    for (std::int64_t i = 0; i < span.count; ++i) {
      Elements& elements = chunk(r, span.buffer, span.first + i);
      if (span.shape + i < 0) throw Broken{"negative shape"};
      for (std::int64_t e = 0; e < length(span.shape + i); ++e) {
        visit(elements[static_cast<std::size_t>(e)]);
      }
    }
  }

  Elements read(std::int64_t r, const std::optional<ConcreteSpan>& span) {
    Elements result;
    if (span) for_each_element(r, *span, [&](Element& element) { result.push_back(element); });
    return result;
  }

  void write(std::int64_t r, const ConcreteAction& action, const Elements& incoming) {
    const Elements operand = read(r, action.operand);
    const bool reduces = action.operand.has_value();
    if (reduces && operand.size() != incoming.size()) throw Broken{"operand of another length"};
    std::size_t i = 0;
    const auto store = [&](Element& element) {
      if (i == incoming.size()) throw Broken{"message too short"};
      element = !reduces                ? incoming[i]
                : action.incoming_first ? reduced(incoming[i], operand[i])
                                        : reduced(operand[i], incoming[i]);
      ++i;
    };
    if (action.target) for_each_element(r, *action.target, store);
    if (i != incoming.size()) throw Broken{"message too long"};
  }

  void open_round(std::int64_t r) {
    while (!finished(r) && round_of(r).empty()) ++at(r).round;
    if (!finished(r)) at(r).states.assign(round_of(r).size(), State::kWaiting);
  }

  bool sweep(std::int64_t r) {
    if (finished(r)) return false;
    const ConcreteRound& round = round_of(r);
    bool moved = false, all_done = true;
    for (std::size_t k = 0; k < round.size(); ++k) {
      const std::size_t i = regime_.reversed ? round.size() - 1 - k : k;
      moved = advance(r, i) || moved;
    }
    for (const State state : at(r).states) all_done = all_done && state == State::kDone;
    if (!all_done) return moved;
    ++at(r).round;
    open_round(r);
    return true;
  }

  bool advance(std::int64_t r, std::size_t i) {
    const ConcreteAction& action = round_of(r)[i];
    State& state = at(r).states[i];
    if (state == State::kDone) return false;
    if (state == State::kWaiting) {
      if (action.after_previous && i > 0 && at(r).states[i - 1] != State::kDone) return false;
      state = State::kPosted;
      return true;  // a peer that has been swept may go on now
    }
    if (action.kind == Action::Kind::kLocal) {
      if (!action.source || !action.target) throw Broken{"malformed action"};
      write(r, action, read(r, action.source));
      state = State::kDone;
      return true;
    }
    if (action.peer < 0 || action.peer >= header_.rank_count) throw Broken{"no such peer"};
    if (action.lane < 0 || action.lane >= header_.lane_count) throw Broken{"no such lane"};
    if (action.kind == Action::Kind::kReceive) return take(r, action, state);
    if (!regime_.eager) return false;  // its receive completes it
    channels_[{r, action.peer, action.lane}].push_back(read(r, action.source));
    state = State::kDone;
    return true;
  }

  bool take(std::int64_t r, const ConcreteAction& action, State& state) {
    if (regime_.eager) {
      auto& messages = channels_[{action.peer, r, action.lane}];
      if (messages.empty()) return false;
      write(r, action, messages.front());
      messages.pop_front();
      state = State::kDone;
      return true;
    }
    if (action.peer == regime_.frozen || finished(action.peer)) return false;
    const ConcreteRound& round = round_of(action.peer);
    for (std::size_t i = 0; i < round.size(); ++i) {
      const ConcreteAction& send = round[i];
      if (send.kind != Action::Kind::kSend || send.peer != r || send.lane != action.lane) continue;
      if (at(action.peer).states[i] != State::kPosted) continue;
      write(r, action, read(action.peer, send.source));
      at(action.peer).states[i] = state = State::kDone;
      return true;
    }
    return false;
  }

  void compare(std::int64_t r) {
    for (std::int64_t c = 0; gets_out(r) && c < chunks_of(header_, Buffer::kOut); ++c) {
      for (std::int64_t e = 0; e < length(c); ++e) {
        const auto i = static_cast<std::size_t>(e);
        const Element& found = chunk(r, Buffer::kOut, c)[i];
        if (!is_expected(found, r, c, e)) {
          throw Broken{"wrong result at rank " + std::to_string(r) + ", chunk " +
                       std::to_string(c)};
        }
      }
    }
    if (regime_.in_place) return;
    if (!reads_in(r)) return;
    for (std::int64_t c = 0; c < chunks_of(header_, Buffer::kIn); ++c) {
      for (std::int64_t e = 0; e < length(c); ++e) {
        if (chunk(r, Buffer::kIn, c)[static_cast<std::size_t>(e)] != input(r, c, e)) {
          throw Broken{"input overwritten"};
        }
      }
    }
  }

  bool is_expected(const Element& found, std::int64_t r, std::int64_t c, std::int64_t e) {
    switch (header_.collective) {
      case Collective::kAllreduce: {
        const Element& first = chunk(0, Buffer::kOut, c)[static_cast<std::size_t>(e)];
        return found.sum == sum_of(c, e) && found.tree == first.tree;
      }
      case Collective::kReduce:
        return found.sum == sum_of(c, e);
      case Collective::kReducescatter:
        return found.sum == sum_of(r, e);
      case Collective::kAllgather:
      case Collective::kGather:
        return found == input(c, 0, e);
      case Collective::kScatter:
        return found == input(header_.root, r, e);
      case Collective::kAlltoall:
        return found == input(c, r, e);
      case Collective::kBroadcast:
        return found == input(header_.root, c, e);
      case Collective::kBarrier:
        break;
    }
    return true;
  }

  std::uint64_t sum_of(std::int64_t c, std::int64_t e) const {
    std::uint64_t sum = 0;
    for (std::int64_t r = 0; r < header_.rank_count; ++r) sum += input(r, c, e).sum;
    return sum;
  }

  void nobody_passed() {
    for (std::int64_t r = 0; r < header_.rank_count; ++r) {
      if (r != regime_.frozen && finished(r)) throw Broken{"a rank passed the barrier alone"};
    }
  }

  const Schedule& header_;
  const std::vector<std::vector<ConcreteRound>>& steps_;
  const Regime regime_;
  std::vector<RankState> ranks_;
  std::map<std::tuple<std::int64_t, std::int64_t, int>, std::deque<Elements>> channels_;
};

}  // namespace

std::optional<std::string> run_reference(const Expanded& expanded, const Regime& regime) {
  try {
    Reference(expanded, regime).run();
  } catch (const Broken& broken) {
    return broken.reason;
  }
  return std::nullopt;
}

std::optional<std::string> judge(const Expanded& expanded) {
  for (const bool reversed : {false, true}) {
    for (const bool eager : {false, true}) {
      for (const bool in_place : {false, true}) {
        if (in_place && expanded.header.collective == Collective::kAlltoall) continue;
        auto wrong = run_reference(expanded, {in_place, eager, reversed, std::nullopt});
        if (wrong) return wrong;
      }
    }
  }
  if (expanded.header.collective != Collective::kBarrier) return std::nullopt;
  for (std::int64_t r = 0; r < expanded.header.rank_count; ++r) {
    if (auto wrong = run_reference(expanded, {false, true, false, r})) return wrong;
  }
  return std::nullopt;
}

}  // namespace farandole

// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "schedule/line.hpp"
#include "schedule/text.hpp"

namespace farandole {
namespace {

// Together with kScheduleBytesMax, limits the memory that a hostile text makes us use to about 200
// MB.
constexpr std::size_t kActionCountMax = std::size_t{1} << 17;
constexpr std::size_t kItemCountMax = std::size_t{1} << 17;
constexpr std::size_t kGuardCountMax = 8;
constexpr std::int64_t kNumberMax = std::int64_t{1} << 31;  // in the header and of loops
constexpr std::int64_t kOrderMax = std::int64_t{1} << 20;
constexpr std::size_t kRotationCountMax = 32;
constexpr std::size_t kStageCountMax = std::size_t{1} << 12;
constexpr std::int64_t kLaneCountMax = std::int64_t{1} << 16;

std::string at_most(std::size_t limit, const std::string& what) {
  return "at most " + std::to_string(limit) + " " + what;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Result<Schedule> run() {
    if (rest_.size() > kScheduleBytesMax) {
      return Error{ErrorKind::kInvalidArgument, "a schedule of " + std::to_string(rest_.size()) +
                                                    " bytes, allowed are " +
                                                    at_most(kScheduleBytesMax, "bytes")};
    }
    header();
    items(schedule_.items, 0);
    if (!fault_.empty()) return Error{ErrorKind::kInvalidArgument, fault_};
    return std::move(schedule_);
  }

 private:
  void header() {
    Schedule& s = schedule_;
    field("farandole", [](Line& line) { line.expect("schedule") && line.number(1, 1); });
    field("collective", [&s](Line& line) {
      const std::string word = line.name();
      if (const auto collective = parse_collective(word)) {
        s.collective = *collective;
      } else {
        line.expected("a collective instead of \"" + word + "\"");
      }
    });
    field("algorithm", [&s](Line& line) { s.algorithm = line.name(); });
    field("ranks", [&s](Line& line) { s.rank_count = line.number(1, kNumberMax); });
    field("root", [&s](Line& line) { s.root = line.number(0, s.rank_count - 1); });
    field("chunks", [&s](Line& line) { s.chunk_count = line.number(0, kNumberMax); });
    field("scratch", [&s](Line& line) { s.scratch_slots = line.number(0, kNumberMax); });
    field("lanes",
          [&s](Line& line) { s.lane_count = static_cast<int>(line.number(1, kLaneCountMax)); });
  }

  template <class Body>
  void field(std::string_view key, Body body) {
    if (!next_line()) return fail("expected \"" + std::string(key) + "\", found the end");
    Line line(line_, 0);
    if (line.expect(key)) body(line);
    finish(line);
  }

  void items(std::vector<Item>& into, int loops_open) {
    while (next_line()) {
      Line line(line_, loops_open);
      if (loops_open > 0 && line.accept("end")) {
        finish(line);
        return;
      }
      if (loops_open == 0 && into.empty() && (order(line) || rotation(line))) continue;
      if (loops_open == 0 && stage(line)) continue;
      if (++item_count_ > kItemCountMax) line.expected(at_most(kItemCountMax, "rounds and loops"));
      if (line.accept("round")) {
        if (finish(line)) round(into, loops_open);
      } else if (line.accept("loop")) {
        loop(line, into, loops_open);
      } else {
        line.expected(loops_open > 0 ? "\"round\", \"loop\" or \"end\""
                                     : "\"round\", \"loop\" or \"stage\"");
        finish(line);
      }
    }
    if (loops_open > 0) fail("expected the \"end\" of a loop, found the end");
  }

  // Statements between the header and the first item.
  bool order(Line& line) {
    Schedule& s = schedule_;
    if (s.rank_count > kOrderMax || !s.order.empty() || !line.accept("order")) return false;
    for (std::int64_t i = 0; i < s.rank_count && !line.failed(); ++i) {
      s.order.push_back(static_cast<std::int32_t>(line.number(0, s.rank_count - 1)));
    }
    finish(line);
    return true;
  }

  bool rotation(Line& line) {
    if (schedule_.rotations.size() == kRotationCountMax || !line.accept("rotation")) return false;
    Rotation claim;
    claim.size = line.number(2, kNumberMax);
    claim.rank_stride = line.number(1, kNumberMax);
    claim.chunk_stride = line.number(0, kNumberMax);
    claim.scratch_stride = line.number(0, kNumberMax);
    schedule_.rotations.push_back(claim);
    finish(line);
    return true;
  }

  bool stage(Line& line) {
    std::vector<Stage>& stages = schedule_.stages;
    if (stages.size() == kStageCountMax || !line.accept("stage")) return false;
    Stage& begun = stages.emplace_back();
    begun.name = line.name();
    if (line.accept("ring")) {
      begun.ring_size = line.number(1, kNumberMax);
      if (line.accept("stride")) begun.ring_stride = line.number(1, kNumberMax);
    }
    finish(line);
    return true;
  }

  void loop(Line& line, std::vector<Item>& into, int loops_open) {
    if (loops_open == Expr::kLoopDepthMax) {
      line.expected(at_most(Expr::kLoopDepthMax, "nested loops"));
    }
    auto loop = std::make_shared<Loop>();
    loop->count = line.number(1, kNumberMax);
    if (!finish(line)) return;
    items(loop->body, loops_open + 1);
    into.emplace_back(std::move(loop));
  }

  void round(std::vector<Item>& into, int loops_open) {
    Round& round = std::get<Round>(into.emplace_back(Round{}));
    if (!schedule_.stages.empty()) {
      round.stage = static_cast<std::int32_t>(schedule_.stages.size()) - 1;
    }
    while (next_line()) {
      Line line(line_, loops_open);
      if (line.accept("end")) {
        finish(line);
        return;
      }
      if (++action_count_ > kActionCountMax) line.expected(at_most(kActionCountMax, "actions"));
      round.actions.push_back(action(line));
      finish(line);
    }
    fail("expected the \"end\" of a round, found the end");
  }

  Action action(Line& line) const {
    Action action;
    if (line.accept("when")) guards(line, action.when);
    action.after_previous = line.accept("then");
    if (line.accept("send")) {
      action.source = line.span_or_nothing();
      line.expect("to");
      peer(line, action);
    } else if (line.accept("receive")) {
      action.kind = Action::Kind::kReceive;
      action.target = line.span_or_nothing();
      if (action.target && line.accept("=")) incoming(line, action);
      line.expect("from");
      peer(line, action);
    } else if (line.accept("copy")) {
      action.kind = Action::Kind::kLocal;
      action.target = line.span();
      line.expect("=");
      action.source = line.span();
    } else if (line.accept("reduce")) {
      action.kind = Action::Kind::kLocal;
      action.target = line.span();
      line.expect("=");
      action.operand = line.span();
      line.expect("+");
      action.source = line.span();
    } else {
      line.expected("\"send\", \"receive\", \"copy\", \"reduce\" or \"end\"");
    }
    return action;
  }

  static void guards(Line& line, std::vector<Guard>& when) {
    do {
      if (when.size() == kGuardCountMax) line.expected(at_most(kGuardCountMax, "conditions"));
      Guard& guard = when.emplace_back();
      guard.low = line.expr();
      line.expect("<=");
      guard.value = line.expr();
      line.expect("<");
      guard.high = line.expr();
    } while (line.accept("and"));
    line.expect(":");
  }

  static void incoming(Line& line, Action& action) {
    action.incoming_first = line.accept("incoming");
    if (action.incoming_first) line.expect("+");
    action.operand = line.span();
    if (action.incoming_first) return;
    line.expect("+");
    line.expect("incoming");
  }

  void peer(Line& line, Action& action) const {
    action.peer = line.expr();
    if (line.accept("lane"))
      action.lane = static_cast<int>(line.number(0, schedule_.lane_count - 1));
  }

  // Moves to the next line that holds more than blanks and a comment; false at the end or after
  // a fault.
  bool next_line() {
    while (fault_.empty() && !rest_.empty()) {
      const std::size_t size = std::min(rest_.find('\n'), rest_.size());
      line_ = rest_.substr(0, size);
      rest_.remove_prefix(std::min(size + 1, rest_.size()));
      ++line_number_;
      const std::size_t start = line_.find_first_not_of(" \t\r");
      if (start != std::string_view::npos && line_[start] != '#') return true;
    }
    return false;
  }

  bool finish(Line& line) {
    line.expect_end();
    if (line.failed()) fail(line.fault());
    return fault_.empty();
  }

  void fail(const std::string& fault) {
    if (fault_.empty()) fault_ = "schedule, line " + std::to_string(line_number_) + ": " + fault;
  }

  Schedule schedule_;
  std::string_view rest_, line_;
  std::size_t line_number_ = 0, item_count_ = 0, action_count_ = 0;
  std::string fault_;
};

}  // namespace

Result<Schedule> parse_schedule(std::string_view text) {
  return Parser(text).run();
}

}  // namespace farandole

// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/text.hpp"

#include <iterator>

namespace farandole {
namespace {

std::string text(const Span& span) {
  constexpr std::string_view kNames[] = {"in", "out", "scratch"};
  std::string result(kNames[static_cast<std::size_t>(span.buffer)]);
  result.append("[").append(span.first.text());
  if (span.count != Expr(1)) result += ", " + span.count.text();
  if (span.shape != span.first) result += " as " + span.shape.text();
  return result + "]";
}

std::string text(const std::optional<Span>& span) {
  return span ? text(*span) : "nothing";
}

std::string moves(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kSend:
      return "send " + text(action.source) + " to " + action.peer.text();
    case Action::Kind::kReceive: {
      std::string result = "receive " + text(action.target);
      if (action.operand && action.incoming_first)
        result += " = incoming + " + text(action.operand);
      if (action.operand && !action.incoming_first)
        result += " = " + text(action.operand) + " + incoming";
      return result + " from " + action.peer.text();
    }
    case Action::Kind::kLocal:
      break;
  }
  if (!action.operand) return "copy " + text(action.target) + " = " + text(action.source);
  return "reduce " + text(action.target) + " = " + text(action.operand) + " + " +
         text(action.source);
}

std::string text(const Action& action) {
  std::string result;
  for (const Guard& guard : action.when) {
    result += (result.empty() ? "when " : " and ") + guard.low.text() +
              " <= " + guard.value.text() + " < " + guard.high.text();
  }
  if (!result.empty()) result += ": ";
  if (action.after_previous) result += "then ";
  result += moves(action);
  if (action.lane != 0) result += " lane " + std::to_string(action.lane);
  return result;
}

const Round* first_round(const Item& item) {
  if (const auto* round = std::get_if<Round>(&item)) return round;
  for (const Item& inner : std::get<std::shared_ptr<const Loop>>(item)->body) {
    if (const Round* round = first_round(inner)) return round;
  }
  return nullptr;
}

std::string text(const Stage& stage) {
  std::string result = "stage " + stage.name;
  if (stage.ring_size > 0) result += " ring " + std::to_string(stage.ring_size);
  if (stage.ring_stride > 1) result += " stride " + std::to_string(stage.ring_stride);
  return result + "\n";
}

void append(std::string& result, const Item& item, std::size_t depth) {
  const std::string indent(2 * depth, ' ');
  if (const auto* round = std::get_if<Round>(&item)) {
    result += indent + "round\n";
    for (const Action& action : round->actions) result += indent + "  " + text(action) + "\n";
  } else {
    const Loop& loop = *std::get<std::shared_ptr<const Loop>>(item);
    result += indent + "loop " + std::to_string(loop.count) + "\n";
    for (const Item& inner : loop.body) append(result, inner, depth + 1);
  }
  result += indent + "end\n";
}

}  // namespace

std::string to_text(const Schedule& schedule) {
  std::string result = "farandole schedule 1\n";
  result += "collective " + std::string(name(schedule.collective)) + "\n";
  result += "algorithm " + schedule.algorithm + "\n";
  result += "ranks " + std::to_string(schedule.rank_count) + "\n";
  result += "root " + std::to_string(schedule.root) + "\n";
  result += "chunks " + std::to_string(schedule.chunk_count) + "\n";
  result += "scratch " + std::to_string(schedule.scratch_slots) + "\n";
  result += "lanes " + std::to_string(schedule.lane_count) + "\n";
  if (!schedule.order.empty()) {
    result += "order";
    for (const std::int32_t rank : schedule.order) result += " " + std::to_string(rank);
    result += "\n";
  }
  for (const Rotation& claim : schedule.rotations) {
    result += "rotation " + std::to_string(claim.size) + " " + std::to_string(claim.rank_stride) +
              " " + std::to_string(claim.chunk_stride) + " " +
              std::to_string(claim.scratch_stride) + "\n";
  }
  std::ptrdiff_t stage_count = 0;  // written so far
  for (const Item& item : schedule.items) {
    const Round* first = first_round(item);
    const auto stage = first == nullptr ? -1 : std::ptrdiff_t{first->stage};
    while (std::ssize(schedule.stages) > stage_count && stage_count <= stage) {
      result += text(schedule.stages[static_cast<std::size_t>(stage_count++)]);
    }
    append(result, item, 0);
  }
  return result;
}

}  // namespace farandole

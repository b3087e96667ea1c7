// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/builder.hpp"

#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>

namespace farandole {

Span in(Expr first, Expr count) {
  return Span{Buffer::kIn, first, std::move(count), first};
}

Span out(Expr first, Expr count) {
  return Span{Buffer::kOut, first, std::move(count), first};
}

Span scratch(Expr slot, Expr shape, Expr count) {
  return Span{Buffer::kScratch, std::move(slot), std::move(count), std::move(shape)};
}

RoundBuilder& RoundBuilder::when(Expr value, Expr low, Expr high) {
  when_.push_back({std::move(value), std::move(low), std::move(high)});
  return *this;
}

RoundBuilder& RoundBuilder::always() {
  when_.clear();
  return *this;
}

RoundBuilder& RoundBuilder::lane(int lane) {
  lane_ = lane;
  return *this;
}

RoundBuilder& RoundBuilder::send(Span source, Expr peer) {
  Action& action = signal(std::move(peer)).round_.actions.back();
  action.source = std::move(source);
  return *this;
}

RoundBuilder& RoundBuilder::receive(Span target, Expr peer) {
  Action& action = await(std::move(peer)).round_.actions.back();
  action.target = std::move(target);
  return *this;
}

RoundBuilder& RoundBuilder::receive_reduce(Span target, Span operand, Expr peer) {
  Action& action = receive(std::move(target), std::move(peer)).round_.actions.back();
  action.operand = std::move(operand);
  return *this;
}

RoundBuilder& RoundBuilder::receive_reduce_first(Span target, Span operand, Expr peer) {
  receive_reduce(std::move(target), std::move(operand), std::move(peer));
  round_.actions.back().incoming_first = true;
  return *this;
}

RoundBuilder& RoundBuilder::copy(Span target, Span source) {
  Action& action = add(Action::Kind::kLocal);
  action.target = std::move(target);
  action.source = std::move(source);
  return *this;
}

RoundBuilder& RoundBuilder::reduce(Span target, Span operand, Span source) {
  copy(std::move(target), std::move(source));
  round_.actions.back().operand = std::move(operand);
  return *this;
}

RoundBuilder& RoundBuilder::signal(Expr peer) {
  add(Action::Kind::kSend).peer = std::move(peer);
  return *this;
}

RoundBuilder& RoundBuilder::await(Expr peer) {
  add(Action::Kind::kReceive).peer = std::move(peer);
  return *this;
}

RoundBuilder& RoundBuilder::then() {
  then_ = true;
  return *this;
}

Action& RoundBuilder::add(Action::Kind kind) {
  Action& action = round_.actions.emplace_back();
  action.kind = kind;
  action.when = when_;
  action.after_previous = std::exchange(then_, false);
  if (kind != Action::Kind::kLocal) {
    action.lane = lane_;
    lane_count_ = std::max(lane_count_, lane_ + 1);
  }
  return action;
}

ScheduleBuilder::ScheduleBuilder(Collective collective, std::string algorithm,
                                 std::int64_t rank_count, std::int64_t chunk_count) {
  schedule_.collective = collective;
  schedule_.algorithm = std::move(algorithm);
  schedule_.rank_count = rank_count;
  schedule_.chunk_count = chunk_count;
}

void ScheduleBuilder::root(std::int64_t root) {
  schedule_.root = root;
}

void ScheduleBuilder::scratch_slots(std::int64_t slots) {
  schedule_.scratch_slots = slots;
}

void ScheduleBuilder::order(std::vector<std::int32_t> rank_at_position) {
  schedule_.order = std::move(rank_at_position);
}

void ScheduleBuilder::rotation(Rotation claim) {
  if (claim.size > 1) schedule_.rotations.push_back(claim);
}

void ScheduleBuilder::stage(const std::string& name, std::int64_t ring_size,
                            std::int64_t ring_stride) {
  assert(open_.empty());
  std::vector<Stage>& stages = schedule_.stages;
  if (stages.empty() || stages.back().name != name) {
    stages.push_back({name, ring_size, ring_stride});
  }
}

RoundBuilder ScheduleBuilder::round() {
  std::vector<Item>& items = open_.empty() ? schedule_.items : *open_.back();
  Round& round = std::get<Round>(items.emplace_back(Round{}));
  if (!schedule_.stages.empty()) {
    round.stage = static_cast<std::int32_t>(schedule_.stages.size()) - 1;
  }
  return RoundBuilder(round, schedule_.lane_count);
}

void ScheduleBuilder::loop(std::int64_t count, const std::function<void(Expr)>& body) {
  if (count <= 0) return;
  const int depth = static_cast<int>(open_.size());
  assert(depth < Expr::kLoopDepthMax);
  auto loop = std::make_shared<Loop>();
  loop->count = count;
  open_.push_back(&loop->body);
  body(Expr::loop(depth));
  open_.pop_back();
  (open_.empty() ? schedule_.items : *open_.back()).emplace_back(std::move(loop));
}

Schedule ScheduleBuilder::build() && {
  return std::move(schedule_);
}

}  // namespace farandole

// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/delegate.hpp"

#include <utility>

namespace farandole {

DelegateOperation::DelegateOperation(DelegateSpec spec)
    : Operation(std::move(spec.terms)), spec_(std::move(spec)) {}

bool DelegateOperation::begin() {
  spec_.call.sequence = spec_.id.sequence;
  auto started = spec_.delegate->start(spec_.call);
  if (started) {
    run_ = *std::move(started);
    advance();
  } else {
    trouble_ = started.error();
  }
  return true;
}

bool DelegateOperation::advance() {
  if (run_ == nullptr) return false;  // in trouble, which the engine has not seen yet
  const auto ended = run_->poll();
  if (!ended) return false;
  run_.reset();
  if (*ended) {
    finish();
  } else {
    trouble_ = ended->error();
  }
  return true;
}

bool DelegateOperation::cancel() {
  if (run_ != nullptr && !run_->abort()) return false;
  run_.reset();
  return true;
}

bool DelegateOperation::done_by(Rank, const FinalState& final_state) const {
  return final_state.has_done(spec_.id.communicator, spec_.id.sequence);
}

void DelegateOperation::withdraw(FinalState& words) const {
  words.withdraw_collective(spec_.id.communicator, spec_.id.sequence);
}

std::string DelegateOperation::description() const {
  return describe(spec_.call.collective, spec_.id);
}

std::string DelegateOperation::state() const {
  return description() + " by " + spec_.algorithm +
         (run_ == nullptr ? ": not started" : ": the delegate runs");
}

}  // namespace farandole

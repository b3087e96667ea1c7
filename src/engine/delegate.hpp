// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "delegates/delegate.hpp"
#include "engine/operation.hpp"

namespace farandole {

/// A collective that a delegate runs.
struct DelegateSpec {
  OperationTerms terms;
  OperationId id;
  std::shared_ptr<DelegateGroup> delegate;
  std::string algorithm;  // the delegate's name
  DelegateCall call;      // without its sequence, which the id has
  Signature signature;
};

/// One such collective in flight: started, then polled. Ranks that disagree are found out by their
/// claims about operations that stand still. A failure in the delegate of one rank fails the
/// operation on all ranks.
class DelegateOperation final : public Operation {
 public:
  explicit DelegateOperation(DelegateSpec spec);

  void set_id(OperationId id) override { spec_.id = id; }
  const OperationId* id() const override { return &spec_.id; }
  Signature signature() const override { return spec_.signature; }
  void withdraw(FinalState& words) const override;
  std::optional<Rank> lost_peer() const override { return std::nullopt; }
  bool done_by(Rank world_rank, const FinalState& final_state) const override;
  std::string description() const override;
  std::string state() const override;

 private:
  bool begin() override;
  bool advance() override;
  bool cancel() override;
  std::uint64_t progress() const override { return run_ != nullptr ? 1 : 0; }

  DelegateSpec spec_;  // without its terms, see terms()
  std::unique_ptr<DelegateRun> run_;
};

}  // namespace farandole

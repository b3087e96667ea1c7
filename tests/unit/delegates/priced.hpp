// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <utility>

#include "delegates/delegate.hpp"

namespace farandole::testing {

/// A delegate for sums on the CPU that has a price and runs nothing. Ranks on several hosts cost it
/// double.
class Priced final : public Delegate {
 public:
  Priced(std::string name, DelegatePrice price) : name_(std::move(name)), price_(price) {}
  std::string_view name() const override { return name_; }
  std::string_view summary() const override { return "Runs nothing."; }
  std::span<const Collective> collectives() const override { return kCollectives; }
  bool supports(const DelegateQuery& query) const override {
    return query.reduction == Reduction::kSum && query.device == "cpu";
  }
  bool reaches(const DelegateMembers&) const override { return false; }
  DelegatePrice price(Collective, std::int64_t ranks, std::int64_t per_host) const override {
    const double factor = per_host < ranks ? 2 : 1;
    return {factor * price_.seconds, factor * price_.seconds_per_byte};
  }
  Result<std::shared_ptr<DelegateGroup>> join(const DelegateMembers&) const override {
    return Error{ErrorKind::kUnsupported, "runs nothing"};
  }

 private:
  static constexpr std::array kCollectives = {Collective::kAllreduce};
  const std::string name_;
  const DelegatePrice price_;
};

}  // namespace farandole::testing

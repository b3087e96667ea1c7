// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/cost.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "algorithms/spec.hpp"
#include "delegates/delegate.hpp"
#include "planner/formulas/formulas.hpp"

namespace farandole {
namespace {

Result<const Formula*> find_formula(const AlgorithmInfo& info) {
  for (const auto formulas :
       {allreduce_formulas(), reduce_formulas(), broadcast_formulas(), reducescatter_formulas(),
        allgather_formulas(), rooted_formulas(), exchange_formulas()}) {
    for (const Formula& formula : formulas) {
      if (formula.collective == info.collective && formula.name == info.name) return &formula;
    }
  }
  return Error{ErrorKind::kInternal, "no formula for algorithm \"" + std::string(info.name) +
                                         "\" for " + std::string(name(info.collective))};
}

/// The price that a delegate states, as one stage.
Cost delegate_cost(const Delegate& delegate, Collective collective, double bytes, Levels& levels) {
  if (levels.rank_count() == 1) return {};
  const bool inside = levels.rank_count() <= levels.ranks_per_host();
  const DelegatePrice price =
      delegate.price(collective, levels.rank_count(), levels.ranks_per_host());
  return {{{.name = std::string(delegate.name()),
            .hop = inside ? Hop::kHost : Hop::kFabric,
            .alpha = price.seconds,
            .bytes = bytes * price.seconds_per_byte}}};
}

}  // namespace

double Cost::seconds() const {
  return std::accumulate(stages.begin(), stages.end(), 0.0,
                         [](double sum, const CostStage& stage) { return sum + stage.seconds(); });
}

Result<Cost> predict(Collective collective, std::string_view spec, double bytes, Levels& levels) {
  auto parsed = parse_spec(collective, spec, levels.rank_count(), 0);
  if (!parsed) return parsed.error();
  if (const Delegate* delegate = parsed->info->delegate) {
    return delegate_cost(*delegate, collective, bytes, levels);
  }
  const auto formula = find_formula(*parsed->info);
  if (!formula) return formula.error();
  CostSheet sheet(levels, parsed->parameters, bytes);
  if (levels.rank_count() > 1) (*formula)->evaluate(sheet);
  return std::move(sheet).finish();
}

}  // namespace farandole

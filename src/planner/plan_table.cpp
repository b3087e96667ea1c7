// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/plan_table.hpp"

#include <bit>
#include <utility>

#include "planner/plan.hpp"

namespace farandole {

// Class 2 k + 1 ends at 2^k bytes, class 2 k + 2 at 1.5 * 2^k.
std::size_t SizeClass::of(std::uint64_t bytes) {
  if (bytes == 0) return 0;
  if (bytes == 1) return 1;
  const auto k = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;  // 2^k < bytes
  const std::uint64_t middle = (std::uint64_t{1} << k) + (std::uint64_t{1} << k) / 2;
  return k > 0 && bytes <= middle ? 2 * k + 2 : 2 * k + 3;
}

std::uint64_t SizeClass::limit(std::size_t size_class) {
  if (size_class == 0) return 0;
  const std::size_t k = (size_class - 1) / 2;
  if (k >= 63) return TuningEntry::kNoLimit;
  const std::uint64_t power = std::uint64_t{1} << k;
  return size_class % 2 == 1 ? power : power + power / 2;
}

PlanTable::PlanTable(Machine machine, const Placement& placement, const GroupShape& shape,
                     TuningTable tuning, std::vector<const AlgorithmInfo*> delegates)
    : levels_(std::move(machine), placement),
      shape_(shape),
      tuning_(std::move(tuning)),
      delegates_(std::move(delegates)) {}

const std::string& PlanTable::find(Collective collective, std::uint64_t bytes, Kind kind) {
  auto& classes = known_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(collective)];
  if (!classes) classes = std::make_unique<Classes>();
  const std::size_t size_class = SizeClass::of(bytes);
  std::string& cell = (*classes)[size_class];
  return cell.empty() ? fill(collective, SizeClass::limit(size_class), kind, cell) : cell;
}

bool PlanTable::tuned(Collective collective, std::uint64_t bytes, Kind kind) const {
  return !tuned_spec(collective, SizeClass::limit(SizeClass::of(bytes)), kind).empty();
}

/// Empty if the tuning table names no spec, or a delegate although `kind` excludes delegates.
std::string_view PlanTable::tuned_spec(Collective collective, std::uint64_t bytes,
                                       Kind kind) const {
  const std::string_view spec = tuning_.find(collective, bytes, shape_);
  const bool may = kind == Kind::kAny || find_delegate(collective, spec) == nullptr;
  return may ? spec : std::string_view();
}

const std::string& PlanTable::fill(Collective collective, std::uint64_t bytes, Kind kind,
                                   std::string& cell) {
  const std::string_view tuned = tuned_spec(collective, bytes, kind);
  if (!tuned.empty()) return cell = tuned;
  PlanOptions options;
  if (kind == Kind::kAny) options.delegates = delegates_;
  return cell = choose(plan(collective, static_cast<double>(bytes), levels_, options)).spec;
}

void PlanTable::set(Collective collective, std::uint64_t bytes, std::string_view spec) {
  const std::size_t size_class = SizeClass::of(bytes);
  TuningEntry entry{.collective = collective, .bytes_max = SizeClass::limit(size_class)};
  if (size_class > 0) entry.bytes_above = SizeClass::limit(size_class - 1);
  std::erase_if(tuning_.entries, [&](const TuningEntry& other) {
    TuningEntry alike = other;
    alike.spec.clear();
    return alike == entry;
  });
  entry.spec = spec;
  if (!spec.empty()) tuning_.entries.insert(tuning_.entries.begin(), entry);
  for (Known& known : known_) {
    if (auto& classes = known[static_cast<std::size_t>(collective)]) (*classes)[size_class].clear();
  }
}

}  // namespace farandole

// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace farandole::tcp {

/// Gives out numbers that a peer sends back, so that no pointer travels and a late or made-up
/// number is noticed: an id is never 0 and never valid again once removed.
/// Blocking  add() allocates only when more entries are alive than ever before.
template <class T>
class SlotTable {
 public:
  explicit SlotTable(std::size_t expected) {
    slots_.reserve(expected);
    free_.reserve(expected);
  }

  std::uint64_t add(const T& value) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(slots_.size()));
      slots_.push_back(Slot{});
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    Slot& slot = slots_[index];
    slot.value = value;
    slot.used = true;
    return id_of(slot, index);
  }

  /// Null if `id` is not alive. Valid until the next add().
  T* find(std::uint64_t id) {
    const std::size_t index = id & 0xffffffff;
    if (index >= slots_.size()) return nullptr;
    Slot& slot = slots_[index];
    return slot.used && id_of(slot, index) == id ? &slot.value : nullptr;
  }

  void remove(std::uint64_t id) {
    const auto index = static_cast<std::uint32_t>(id & 0xffffffff);
    Slot& slot = slots_[index];
    slot.used = false;
    if (++slot.generation == 0) slot.generation = 1;
    free_.push_back(index);
  }

  bool empty() const { return free_.size() == slots_.size(); }

  /// Removes every entry for which `unwanted(T&)` holds.
  template <class Predicate>
  void remove_if(Predicate unwanted) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].used && unwanted(slots_[i].value)) remove(id_of(slots_[i], i));
    }
  }

 private:
  struct Slot {
    T value{};
    std::uint32_t generation = 1;
    bool used = false;
  };
  static std::uint64_t id_of(const Slot& slot, std::size_t index) {
    return (std::uint64_t{slot.generation} << 32) | index;
  }

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace farandole::tcp

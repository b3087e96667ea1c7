// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace farandole::tcp {

/// Gives out numbers that a peer sends back, so that no pointer travels and a late or forged number
/// is noticed: an id is never 0 and never valid again once removed.
///
/// Blocking  add() allocates only when more entries are alive than ever before.
template <class T>
class IdTable {
 public:
  explicit IdTable(std::size_t expected) {
    entries_.reserve(expected);
    free_.reserve(expected);
  }

  std::uint64_t add(const T& value) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(entries_.size()));
      entries_.push_back(Entry{});
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    Entry& entry = entries_[index];
    entry.value = value;
    entry.used = true;
    return id_of(entry, index);
  }

  /// Null if `id` is not alive. Valid until the next add().
  T* find(std::uint64_t id) {
    const std::size_t index = id & 0xffffffff;
    if (index >= entries_.size()) return nullptr;
    Entry& entry = entries_[index];
    return entry.used && id_of(entry, index) == id ? &entry.value : nullptr;
  }

  void remove(std::uint64_t id) {
    const auto index = static_cast<std::uint32_t>(id & 0xffffffff);
    Entry& entry = entries_[index];
    entry.used = false;
    if (++entry.generation == 0) entry.generation = 1;
    free_.push_back(index);
  }

  bool empty() const { return free_.size() == entries_.size(); }

  /// Removes every entry for which `unwanted(T&)` holds.
  template <class Predicate>
  void remove_if(Predicate unwanted) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].used && unwanted(entries_[i].value)) remove(id_of(entries_[i], i));
    }
  }

 private:
  struct Entry {
    T value{};
    std::uint32_t generation = 1;
    bool used = false;
  };
  static std::uint64_t id_of(const Entry& entry, std::size_t index) {
    return (std::uint64_t{entry.generation} << 32) | index;
  }

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
};

}  // namespace farandole::tcp

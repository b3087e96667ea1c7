// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "coordinator/request.hpp"

namespace farandole::coordinator {

/// Responses that all ranks agreed on once, each at a bit position that is the same on every rank
/// [Romero22 §4.1]. Entries are added, moved and removed in the order of the responses, which is
/// the same on all ranks.
///
/// Order     The least recently used entry is evicted; a new entry takes the lowest free position.
/// Memory    About 100 bytes per entry, apart from the request, which is shared.
class Cache {
 public:
  explicit Cache(std::size_t capacity) : capacity_(capacity) {}

  /// The position of the entry of that name, if there is one and it agrees with `request`.
  std::optional<std::uint32_t> find(const TensorRequest& request) const;
  /// The position of the entry of that name, whatever its terms.
  std::optional<std::uint32_t> position(std::string_view name) const;
  bool contains(std::string_view name) const { return position(name).has_value(); }
  /// `position` is in use.
  const SharedRequest& at(std::uint32_t position) const { return entries_[position].agreed; }
  bool used(std::uint32_t position) const {
    return position < entries_.size() && entries_[position].agreed != nullptr;
  }

  /// Stores what was agreed, as the most recently used. An entry of the same name is replaced in
  /// its position.
  void put(const SharedRequest& agreed);
  /// Marks the entry as the most recently used.
  void touch(std::uint32_t position);
  /// Returns whether there was an entry of that name.
  bool erase(std::string_view name);

  /// The entry that is evicted next.
  std::optional<std::uint32_t> oldest() const {
    return oldest_ == kNone ? std::nullopt : std::optional(oldest_);
  }
  std::size_t capacity() const { return capacity_; }
  std::size_t size() const { return positions_.size(); }
  /// One more than the highest position in use.
  std::uint32_t extent() const { return static_cast<std::uint32_t>(entries_.size()); }
  std::uint64_t evictions() const { return evictions_; }
  /// Everything that must be the same on every rank: positions, names, terms, order of use.
  std::string fingerprint() const;

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Entry {
    SharedRequest agreed;  // null: the position is free
    std::uint32_t older = kNone, newer = kNone;
  };
  void link_newest(std::uint32_t position);
  void unlink(std::uint32_t position);
  void release(std::uint32_t position);

  std::size_t capacity_;
  std::vector<Entry> entries_;  // the last one is in use
  std::set<std::uint32_t> free_;
  std::unordered_map<std::string_view, std::uint32_t> positions_;  // views into `agreed`
  std::uint32_t oldest_ = kNone, newest_ = kNone;
  std::uint64_t evictions_ = 0;
};

}  // namespace farandole::coordinator

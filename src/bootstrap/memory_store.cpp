// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <condition_variable>
#include <map>
#include <mutex>

#include "bootstrap/number.hpp"
#include "farandole/store.hpp"

namespace farandole {

struct MemoryStore::Values {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string, std::less<>> by_key;
};

MemoryStore::MemoryStore() : values_(std::make_unique<Values>()) {}
MemoryStore::~MemoryStore() = default;

Result<void> MemoryStore::set(const std::string& key, std::string_view value) {
  const std::lock_guard lock(values_->mutex);
  values_->by_key[key] = value;
  values_->changed.notify_all();
  return {};
}

Result<std::string> MemoryStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  std::unique_lock lock(values_->mutex);
  const bool there =
      values_->changed.wait_for(lock, timeout, [&] { return values_->by_key.contains(key); });
  if (there) return values_->by_key[key];
  return Error{ErrorKind::kTimedOut, "there is no '" + key + "' in " + name() + "."};
}

Result<std::int64_t> MemoryStore::add(const std::string& key, std::int64_t amount) {
  const std::lock_guard lock(values_->mutex);
  std::string& value = values_->by_key[key];
  const auto sum = add_to_text(value, amount, key);
  if (!sum) return sum.error();
  value = std::to_string(*sum);
  values_->changed.notify_all();
  return *sum;
}

}  // namespace farandole

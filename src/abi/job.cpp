// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "abi/job.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "abi/checks.hpp"
#include "abi/convert.hpp"
#include "abi/handles.hpp"

namespace farandole::abi {
namespace {

constexpr std::int32_t kPortMax = 65535;

/// A store that the caller keeps.
class CallerStore final : public Store {
 public:
  explicit CallerStore(const farandole_store& calls)
      : calls_(calls), name_(calls.name != nullptr ? calls.name : "the caller's store") {}

  Result<void> set(const std::string& key, std::string_view value) override {
    return outcome("set", key, calls_.set(calls_.data, key.c_str(), value.data(), value.size()));
  }
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    const auto limit =
        static_cast<std::int32_t>(std::clamp<std::int64_t>(timeout.count(), 0, kMost));
    std::optional<std::string> value;
    const farandole_status status =
        calls_.get(calls_.data, key.c_str(), limit, &value, &CallerStore::put);
    if (auto valid = outcome("get", key, status); !valid) return valid.error();
    if (value) return *std::move(value);
    return Error{ErrorKind::kInvalidArgument,
                 name_ + " gave no value for '" + key + "': its get() did not call put()."};
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    std::int64_t sum = 0;
    const farandole_status status = calls_.add(calls_.data, key.c_str(), amount, &sum);
    if (auto valid = outcome("add", key, status); !valid) return valid.error();
    return sum;
  }
  Reach reach() const override {
    if (calls_.reach == FARANDOLE_REACH_PROCESS) return Reach::kProcess;
    return calls_.reach == FARANDOLE_REACH_USER ? Reach::kUser : Reach::kShared;
  }
  std::string name() const override { return name_; }

 private:
  static void put(void* target, const void* value, std::size_t length) {
    auto* const to = static_cast<std::optional<std::string>*>(target);
    to->emplace(static_cast<const char*>(value), length);
  }
  Result<void> outcome(const char* function, const std::string& key,
                       farandole_status status) const {
    if (status == FARANDOLE_OK) return {};
    const bool known = status > FARANDOLE_OK && status <= FARANDOLE_ABORTED;
    return Error{known ? static_cast<ErrorKind>(status - 1) : ErrorKind::kInternal,
                 std::string(function) + "() of " + name_ + " gave the status " +
                     std::to_string(status) + " for '" + key + "'."};
  }

  const farandole_store calls_;
  const std::string name_;
};

Result<std::shared_ptr<Store>> read_store(const char* call, const farandole_store* store) {
  Checks checks(call, "job.store");
  const farandole_store given = checks.read(store, kStoreSizeMin);
  checks.present("set", given.set != nullptr, "a function");
  checks.present("get", given.get != nullptr, "a function");
  checks.present("add", given.add != nullptr, "a function");
  checks.constant("reach", given.reach, FARANDOLE_REACH_PROCESS);
  checks.reserved(given.reserved);
  if (checks.first()) return *checks.first();
  return std::shared_ptr<Store>(std::make_shared<CallerStore>(given));
}

std::string text(const char* given, const char* otherwise = "") {
  return given != nullptr ? given : otherwise;
}

}  // namespace

Result<Job> read_job(const char* call, const farandole_job* job) {
  Checks checks(call, "job");
  const farandole_job given = checks.read(job, kJobSizeMin);
  checks.range("port", given.port, 0, kPortMax);
  checks.flag("trust_store", given.trust_store);
  checks.milliseconds("timeout_ms", given.timeout_ms);
  checks.milliseconds("start_timeout_ms", given.start_timeout_ms);
  checks.present("secret", given.secret != nullptr || given.secret_length == 0,
                 "a pointer to secret_length bytes");
  if (checks.first()) return *checks.first();
  Job read;
  read.rank = Rank{given.rank};
  read.size = given.size;
  read.local_rank = given.local_rank;
  if (given.local_size != 0) read.local_size = given.local_size;
  read.trust_store = given.trust_store == 1;
  read.id = text(given.id);
  read.prefix = text(given.prefix, "farandole");
  read.address = text(given.address);
  read.port = static_cast<std::uint16_t>(given.port);
  read.interface = text(given.interface);
  read.host = text(given.host);
  read.host_id = text(given.host_id);
  read.secret = Secret({static_cast<const char*>(given.secret), given.secret_length});
  read.timeout = std::chrono::milliseconds(given.timeout_ms);
  read.start_timeout = std::chrono::milliseconds(given.start_timeout_ms);
  if (given.store != nullptr) {
    auto store = read_store(call, given.store);
    if (!store) return store.error();
    read.store = *std::move(store);
  }
  return read;
}

}  // namespace farandole::abi

using namespace farandole;
using namespace farandole::abi;

farandole_status farandole_init_from_job(const farandole_job* job, farandole_context** context) {
  const char* const call = __func__;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_target(call, "context", context); !valid) return valid;
    const auto read = read_job(call, job);
    if (!read) return read.error();
    auto joined = Context::from_job(*read);
    if (!joined) return joined.error();
    make_handle(context, *std::move(joined));
    return {};
  });
}

// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/complete.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/settings.hpp"
#include "bootstrap/host.hpp"
#include "bootstrap/invalid.hpp"
#include "bootstrap/secret.hpp"
#include "bootstrap/socket.hpp"

namespace farandole {
namespace {

constexpr int kPortEnd = 65536;
constexpr std::size_t kPrefixBytesMax = 200;

Error bad_field(const char* field, const std::string& given, const std::string& allowed) {
  return invalid("the job's " + std::string(field) + " is " + given + ", allowed is " + allowed +
                 ".");
}

Result<void> check_numbers(const Job& job) {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  if (job.size < 1) return bad_field("size", number(job.size), "1 or more");
  const int rank = job.rank.value();
  if (rank < 0 || rank >= job.size) {
    return bad_field("rank", number(rank), "0 to " + number(job.size - 1));
  }
  if (job.local_size < 1 || job.local_size > job.size) {
    return bad_field("local_size", number(job.local_size), "1 to " + number(job.size));
  }
  if (job.local_rank < 0) return bad_field("local_rank", number(job.local_rank), "0 or more");
  for (const auto& [name, time] :
       {std::pair("timeout", job.timeout), std::pair("start_timeout", job.start_timeout)}) {
    if (time.count() < 0) return bad_field(name, number(time.count()) + " ms", "0 or more");
  }
  return {};
}

/// Checks how rank 0 is found.
Result<void> check_meeting(const Job& job) {
  if (job.store) {
    if (job.prefix.empty() || job.prefix.size() > kPrefixBytesMax) {
      return bad_field("prefix", std::to_string(job.prefix.size()) + " bytes long",
                       "1 to " + std::to_string(kPrefixBytesMax));
    }
    if (job.port == 0) return {};
  } else if (job.address.empty()) {
    return invalid("the job has " + std::to_string(job.size) +
                   " ranks, and neither a store nor an address of rank 0.");
  }
  const bool inherited = job.rank == Rank{0} && job.listen_fd >= 0;
  if (inherited || (job.port > 0 && job.port_count > 0 && job.port + job.port_count <= kPortEnd)) {
    return {};
  }
  return invalid("rank 0's ports are " + std::to_string(job.port) + " and the next " +
                 std::to_string(job.port_count - 1) + "; allowed is 1 to 65535.");
}

}  // namespace

Result<void> apply_settings(Job& job) {
  for (const auto& [name, target] : {std::pair("FARANDOLE_TIMEOUT", &job.timeout),
                                     std::pair("FARANDOLE_START_TIMEOUT", &job.start_timeout)}) {
    // A year is as good as no limit, and stays within what the clock can add.
    constexpr std::chrono::milliseconds kTimeMax = std::chrono::hours(366 * 24);
    if (target->count() == 0) {
      const auto seconds = number_setting(name);
      if (!seconds) return seconds.error();
      const double most = static_cast<double>(kTimeMax.count());
      *target =
          std::chrono::milliseconds(static_cast<std::int64_t>(std::min(*seconds * 1000, most)));
    }
    *target = std::min(*target, kTimeMax);
  }
  if (job.interface.empty()) {
    auto interface = text_setting("FARANDOLE_INTERFACE");
    if (!interface) return interface.error();
    job.interface = *std::move(interface);
  }
  if (job.host.empty()) job.host = host_name();
  if (job.host_id.empty()) job.host_id = host_identity();
  return {};
}

Result<void> check(const Job& job) {
  auto good = check_numbers(job);
  return good && job.size > 1 ? check_meeting(job) : good;
}

bool secret_in_store(const Job& job) {
  if (!job.store || !job.secret.empty()) return false;
  return job.trust_store || job.store->reach() != Store::Reach::kShared;
}

bool on_one_host(const Job& job) {
  const bool threads = job.store && job.store->reach() == Store::Reach::kProcess;
  return threads || job.local_size == job.size;
}

Result<Job> complete(Job job) {
  if (!job.store && job.address.empty() && on_one_host(job)) job.address = "127.0.0.1";
  if (auto good = check(job); !good) return good.error();
  if (auto read = apply_settings(job); !read) return read.error();
  if (job.started_by.empty()) job.started_by = "Job";
  if (job.size == 1) {
    if (job.id.empty()) job.id = "alone";
    return job;
  }
  // A job with a store and no name takes the name that rank 0 gives it.
  if (job.id.empty() && !job.store) job.id = text(Endpoint{job.address, job.port});
  if (!job.secret.empty() || secret_in_store(job)) return job;
  auto secret = job_secret();
  if (!secret) return secret.error();
  job.secret = *std::move(secret);
  return job;
}

}  // namespace farandole

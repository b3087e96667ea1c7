// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/meeting.hpp"

#include <chrono>
#include <cstdint>
#include <utility>

#include "bootstrap/complete.hpp"
#include "bootstrap/host.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/secret.hpp"
#include "bootstrap/wire.hpp"

namespace farandole {
namespace {

constexpr std::size_t kJobSecretBytes = 32, kJobIdBytes = 8;
constexpr std::uint8_t kMeeting = 1, kCancelled = 2;
constexpr std::size_t kEndpointsMax = 64;

std::string starts_key(const Job& job) {
  return job.prefix + "/starts";
}
std::string secret_key(const Job& job) {
  return job.prefix + "/secret";
}
std::string meeting_key(const Job& job) {
  return job.prefix + "/rank 0";
}

Error store_error(const Job& job, const std::string& doing, const Error& error) {
  return Error{error.kind, "rank " + std::to_string(job.rank.value()) + " cannot " + doing + " " +
                               job.store->name() + ": " + error.message};
}

/// Where the others may reach a listener, apart from this host's loopback.
std::vector<std::string> hosts_of(const Job& job, const Endpoint& listener) {
  if (!job.address.empty()) return {job.address};
  if (!listener.host.empty()) return {listener.host};
  return host_addresses();
}

std::vector<Endpoint> in_order(std::vector<Endpoint> endpoints, const std::string& host) {
  if (host != host_identity() || endpoints.empty()) return endpoints;
  const std::uint16_t port = endpoints.front().port;
  for (const char* loopback : {"::1", "127.0.0.1"}) {
    endpoints.insert(endpoints.begin(), Endpoint{loopback, port});
  }
  return endpoints;
}

Result<std::vector<Endpoint>> read_meeting(Job& job, const std::string& word) {
  Reader reader(word);
  const std::uint8_t kind = reader.u8();
  if (kind == kCancelled) return decode_failure(word.substr(1));
  std::string id = reader.text();
  const std::string host = reader.text();
  const std::uint32_t count = reader.u32();
  std::vector<Endpoint> endpoints;
  for (std::uint32_t i = 0; i < count && i < kEndpointsMax && reader.ok(); ++i) {
    std::string address = reader.text();
    endpoints.push_back(Endpoint{std::move(address), reader.u16()});
  }
  if (kind != kMeeting || !reader.complete() || endpoints.empty()) {
    return Error{ErrorKind::kInternal, "what is under '" + meeting_key(job) + "' in " +
                                           job.store->name() + " is not a word of rank 0."};
  }
  if (job.id.empty()) job.id = std::move(id);
  return in_order(std::move(endpoints), host);
}

}  // namespace

Result<void> open_meeting(Job& job) {
  const auto starts = job.store->add(starts_key(job), 1);
  if (!starts) return store_error(job, "start a job in", starts.error());
  if (*starts > 1) {
    return Error{ErrorKind::kInvalidArgument,
                 "a rank 0 has begun with prefix '" + job.prefix + "' in " + job.store->name() +
                     " before; each start of a job needs a prefix of its own there."};
  }
  auto id = random_bytes(kJobIdBytes);
  if (!id) return id.error();
  if (job.id.empty()) job.id = job.prefix + " " + hexadecimal(*id);
  if (!secret_in_store(job)) return {};
  auto bytes = random_bytes(kJobSecretBytes);
  if (!bytes) return bytes.error();
  const Transient raw(*std::move(bytes));
  const Transient secret(hexadecimal(raw.text));
  if (auto left = job.store->set(secret_key(job), secret.text); !left) {
    return store_error(job, "leave the secret in", left.error());
  }
  job.secret = Secret(secret.text);
  return {};
}

Result<void> publish_meeting(Job& job, const Endpoint& listener) {
  const std::vector<std::string> hosts = hosts_of(job, listener);
  Writer word;
  word.u8(kMeeting).text(job.id).text(host_identity());
  const std::size_t count = std::min(hosts.size() + 1, kEndpointsMax);
  word.u32(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i + 1 < count; ++i) word.text(hosts[i]).u16(listener.port);
  // The last resort, for ranks that share a host and do not know it.
  word.text("127.0.0.1").u16(listener.port);
  job.address = hosts.empty() ? "127.0.0.1" : hosts.front();
  job.port = listener.port;
  job.port_count = 1;
  auto left = job.store->set(meeting_key(job), word.bytes());
  return left ? Result<void>() : store_error(job, "say where it listens in", left.error());
}

void cancel_meeting(const Job& job, const Error& why) {
  Writer word;
  word.u8(kCancelled);
  (void)job.store->set(meeting_key(job), word.bytes() + encode_failure(why));
}

Result<std::vector<Endpoint>> find_meeting(Job& job, Deadline deadline) {
  constexpr int kForever = 1'000'000'000;
  const auto left = [&] { return std::chrono::milliseconds(deadline.remaining_ms(kForever)); };
  const auto word = job.store->get(meeting_key(job), left());
  if (!word && word.error().kind == ErrorKind::kTimedOut) {
    return Error{ErrorKind::kTimedOut,
                 "rank 0 did not come: rank " + std::to_string(job.rank.value()) + " of " +
                     std::to_string(job.size) + " found no word of it under '" + meeting_key(job) +
                     "' in " + job.store->name() + " within " + describe(job.start_timeout) + "."};
  }
  if (!word) return store_error(job, "look for rank 0 in", word.error());
  auto endpoints = read_meeting(job, *word);
  if (!endpoints || !secret_in_store(job)) return endpoints;
  auto value = job.store->get(secret_key(job), left());
  if (!value) return store_error(job, "find the secret in", value.error());
  const Transient secret(*std::move(value));
  if (secret.text.empty()) {
    return Error{ErrorKind::kInternal, "the secret in " + job.store->name() + " is empty."};
  }
  job.secret = Secret(secret.text);
  return endpoints;
}

}  // namespace farandole

#include "base/certificates.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace zinc {
namespace {

TEST(Certificates, first_file_wins_and_folders_do_not_count) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "zinc-certificates";
  std::filesystem::create_directories(folder / "a_folder");
  std::ofstream(folder / "second.pem") << "x";
  std::ofstream(folder / "third.pem") << "x";
  const std::filesystem::path paths[] = {folder / "a_folder", folder / "missing.pem", folder / "second.pem",
                                         folder / "third.pem"};
  EXPECT_EQ(first_file_of(paths), (folder / "second.pem").string());
  EXPECT_EQ(first_file_of(std::span(paths).first(2)), "");
  std::filesystem::remove_all(folder);
}

TEST(Certificates, environment_variable_wins_over_the_system) {
  const char* const before = std::getenv("SSL_CERT_FILE");
  const std::string saved = before ? before : "";
  setenv("SSL_CERT_FILE", "/somewhere/bundle.pem", 1);
  EXPECT_EQ(certificate_bundle(), "/somewhere/bundle.pem");
  setenv("SSL_CERT_FILE", "", 1);
  EXPECT_NE(certificate_bundle(), "/somewhere/bundle.pem");
  before ? setenv("SSL_CERT_FILE", saved.c_str(), 1) : unsetenv("SSL_CERT_FILE");
}

}  // namespace
}  // namespace zinc

"""Authentication of clients, authorization of their requests, and quotas."""
